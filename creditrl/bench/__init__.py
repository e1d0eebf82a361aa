"""Speeds measured side by side: ours and, if it is installed, upstream's."""
