"""Memory of a run before it starts: what it needs, and what to change if it does not fit."""
