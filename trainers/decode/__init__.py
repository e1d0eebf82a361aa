"""Sampling from the policy while it trains: sampling weights, and how engines get them."""
