"""How an evaluation stands, in a table on the terminal that is drawn anew as episodes end."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from creditrl.agents.evaluate import EpisodeResult

__all__ = ["LiveTable"]


@dataclass(slots=True)
class _Row:
    name: str
    wanted: int
    ended: int = 0
    failed: int = 0
    solved: int = 0
    score: float = 0.0
    turns: int = 0
    tokens: int = 0
    cost: float = 0.0

    def cells(self) -> tuple[str, ...]:
        valid = self.ended - self.failed
        per = max(1, valid)
        return (
            self.name,
            f"{self.ended}/{self.wanted}",
            f"{100 * self.solved / per:.1f}" if valid else "-",
            f"{self.score / per:.3f}" if valid else "-",
            f"{self.turns / per:.1f}" if valid else "-",
            f"{self.tokens:,}",
            f"${self.cost:.3f}" if self.cost else "-",
            str(self.failed),
        )


class LiveTable:
    """One row per list of tasks. Where nobody watches, nothing is shown.

    It goes to stderr: results go to stdout.

    Args:
        rows: name and number of tasks of each list.
    """

    def __init__(self, rows: dict[str, int]) -> None:
        self._rows = {name: _Row(name, wanted) for name, wanted in rows.items()}
        self._live: Any = None

    def __enter__(self) -> LiveTable:
        if sys.stderr.isatty():
            from rich.live import Live

            from creditrl.terminal import PlainConsole

            self._live = Live(
                get_renderable=self._table,
                console=PlainConsole(stderr=True),
                refresh_per_second=4,
                transient=True,
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def add(self, name: str, episode: EpisodeResult) -> None:
        """Count a finished episode."""
        row = self._rows[name]
        row.ended += 1
        row.tokens += episode.tokens
        row.cost += episode.cost
        if episode.error:
            row.failed += 1
            return
        row.solved += episode.success
        row.score += episode.score
        row.turns += episode.turns

    def _table(self) -> Any:
        from creditrl.cli.console import table

        shown = table(
            "tasks", ">episodes", ">success %", ">score", ">turns", ">tokens", ">cost", ">failed"
        )
        for row in self._rows.values():
            shown.add_row(*row.cells())
        return shown
