"""VisualSokoban: push every box onto a target, seen as text, as a picture, or both."""

from __future__ import annotations

from creditrl.envs.sokoban.engine import SokobanEngine
from creditrl.envs.sokoban.env import SokobanConfig, SokobanEnv, SokobanVectorEnv
from creditrl.envs.sokoban.level import Level
from creditrl.envs.sokoban.rules import ACTION_WORDS, RoomsStep, step_rooms

__all__ = [
    "ACTION_WORDS",
    "Level",
    "RoomsStep",
    "SokobanConfig",
    "SokobanEngine",
    "SokobanEnv",
    "SokobanVectorEnv",
    "step_rooms",
]
