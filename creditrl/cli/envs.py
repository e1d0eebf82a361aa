"""``creditrl envs``: the environments."""

from __future__ import annotations

from dataclasses import dataclass

from creditrl.cli.options import short_name
from creditrl.console import console, next_step, table
from creditrl.envs.register import ENVIRONMENTS
from creditrl.flags import override

__all__ = ["run"]


@dataclass(frozen=True, slots=True)
class EnvsOptions:
    """List the environments."""


def run(argv: list[str]) -> int:
    """List the environments."""
    override(EnvsOptions(), argv, "creditrl envs")
    rows = table("id", "short name", "what")
    for entry in ENVIRONMENTS:
        rows.add_row(entry.id, short_name(entry.id), entry.summary)
    console().print(rows)
    name = short_name(ENVIRONMENTS[0].id)
    print(f"Options of one: creditrl play {name} --help")
    next_step(f"creditrl play {name}")
    return 0
