"""Recipes: TOML files that `creditrl train @name` finds."""
