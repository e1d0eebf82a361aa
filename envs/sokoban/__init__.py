"""VisualSokoban: push every box onto a target, seen as text, as a picture, or both."""

from __future__ import annotations

from creditrl.envs.record import Environment

__all__ = ["ENVIRONMENT"]

ENVIRONMENT = Environment(
    id="CreditRL/VisualSokoban-v0",
    entry_point="creditrl.envs.sokoban.env:SokobanEnv",
    vector_entry_point="creditrl.envs.sokoban.env:SokobanVectorEnv",
    summary="Push every box onto a target; text, image or both; levels of four tiers.",
    recipe="quickstart",
    words="creditrl.envs.sokoban.prompt:SOKOBAN",
    data="creditrl.envs.sokoban.data:DATA",
    picture="creditrl.envs.sokoban.picture:picture_of",
    bench="creditrl.envs.sokoban.bench:BENCH",
)
