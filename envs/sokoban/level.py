"""A Sokoban level: walls, targets, boxes and the player on a rectangular grid."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Level"]


@dataclass(frozen=True, slots=True)
class Level:
    """One starting position. Cells are numbered row by row: ``cell = row * width + column``."""

    height: int
    width: int
    walls: bytes
    """One byte per cell: 1 where there is a wall."""
    targets: tuple[int, ...]
    """Target cells, ascending."""
    boxes: tuple[int, ...]
    """Box cells, ascending; as many as targets."""
    player: int
    """The player's cell."""
    optimal: int | None = None
    """Fewest moves to the solved position (moves, not pushes); None where it was not computed."""
