"""What people look at: the learning-curve picture and the progress display."""

__all__: list[str] = []
