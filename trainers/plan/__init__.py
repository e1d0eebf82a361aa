"""Memory of a run before it starts: what it needs, and what to change where it does not fit."""
