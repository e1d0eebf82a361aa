"""Speeds measured side by side: ours and, where it is installed, upstream's."""
