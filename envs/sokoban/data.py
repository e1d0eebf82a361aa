"""Levels by others that VisualSokoban reads, and how to get them."""

from __future__ import annotations

from creditrl.envs.data import OfficialData
from creditrl.envs.sokoban.tasks import holds_levels, official_coverage

__all__ = ["DATA"]


DATA = OfficialData(
    env="VisualSokoban",
    home="sokoban",
    what="Boxoban levels (10x10, 4 boxes), or any XSB level files of your own",
    source="github.com/google-deepmind/boxoban-levels",
    licence="Apache-2.0",
    patterns=("**/*.txt", "**/*.xsb", "**/*.sok"),
    layout=(
        "unfiltered/{train,valid,test}/*.txt",
        "medium/{train,valid}/*.txt",
        "hard/*.txt",
        "or any *.txt, *.xsb files of levels in one folder",
    ),
    fetch=(
        "git clone --depth 1 https://github.com/google-deepmind/boxoban-levels {folder}",
        "or put level files of your own there.",
    ),
    example="creditrl play VisualSokoban --tier boxoban --data official",
    variables=("CREDITRL_SOKOBAN_DATA",),
    holds=holds_levels,
    coverage=official_coverage,
)
