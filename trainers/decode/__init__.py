"""Sampling from the policy while it trains: weights that sample, and how engines get them."""
