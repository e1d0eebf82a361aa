"""Memory plan of a run: what it will need, and what to change if that does not fit."""
