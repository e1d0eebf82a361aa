"""Visual output: learning curves, the progress display, and the page of ``creditrl view``."""

__all__: list[str] = []
