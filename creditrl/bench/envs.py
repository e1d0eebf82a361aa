"""The environments that ``creditrl bench envs`` measures, and what it reports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from creditrl._origin import install_command
from creditrl._version import __version__
from creditrl.bench.alfworld import ALFWorldSizes, alfworld_contests, alfworld_games
from creditrl.bench.measure import Contest, Figures, Round, Side, importable, machine
from creditrl.bench.sokoban import SokobanSizes, sokoban_contests
from creditrl.bench.sotopia import REFERENCE as SOTOPIA_REFERENCE
from creditrl.bench.sotopia import SotopiaSizes, sotopia_contests
from creditrl.bench.virtualhome import HOW as VIRTUALHOME_HOW
from creditrl.bench.virtualhome import REFERENCE as VIRTUALHOME_REFERENCE
from creditrl.bench.virtualhome import VirtualHomeSizes, virtualhome_contests
from creditrl.bench.webshop import REFERENCE as WEBSHOP_REFERENCE
from creditrl.bench.webshop import WebShopSizes, webshop_contests
from creditrl.bench.webshop_browser import browser_contests

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["BENCHES", "EnvBench", "import_contest", "report_json", "report_table"]

_IMPORT = (
    "import sys, time, gymnasium; n = len(sys.modules); t = time.process_time(); import creditrl; "
    "print(time.process_time() - t, len(sys.modules) - n)"
)


@dataclass(frozen=True, slots=True)
class EnvBench:
    """The measurements of one environment."""

    env: str
    """Short name."""
    contests: Callable[[bool], list[Contest]]
    """Returns the measurements; True makes them tiny."""
    reference: str
    """Import name of the upstream package."""
    extra: str
    """Extra that installs it."""
    how: str = ""
    """How to get it, where an extra does not bring it."""
    note: Callable[[bool], str] | None = None
    """Says what the figures also depend on, e.g. which games were played; the same argument."""


_TINY_ALFWORLD = ALFWorldSizes(
    games=2,
    steps=2,
    copies=4,
    group=2,
    vector_steps=2,
    resets=1,
    snapshots=1,
    memory_copies=2,
    their_games=1,
    their_steps=2,
    their_memory_copies=1,
)
_TINY_SOKOBAN = SokobanSizes(
    copies=4,
    engine_steps=3,
    vector_steps=3,
    image_steps=2,
    single_steps=3,
    snapshots=1,
    levels=2,
    large_levels=1,
    their_large_levels=1,
    their_steps=3,
    their_rgb_steps=2,
)
_TINY_SOTOPIA = SotopiaSizes(
    copies=4, vector_steps=3, single_steps=3, resets=2, snapshots=1, their_turns=2
)
_TINY_WEBSHOP = WebShopSizes(
    num_products=60,
    copies=4,
    group=2,
    vector_steps=3,
    single_steps=3,
    resets=2,
    snapshots=1,
    fresh_steps=2,
    their_steps=3,
)


_TINY_VIRTUALHOME = VirtualHomeSizes(
    tasks=2,
    steps=2,
    copies=4,
    group=2,
    vector_steps=2,
    resets=1,
    snapshots=1,
    memory_copies=2,
    their_tasks=1,
)


def _alfworld_sizes(tiny: bool) -> ALFWorldSizes:
    return _TINY_ALFWORLD if tiny else ALFWorldSizes()


BENCHES: tuple[EnvBench, ...] = (
    EnvBench(
        env="ALFWorld",
        contests=lambda tiny: alfworld_contests(_alfworld_sizes(tiny)),
        reference="textworld",
        extra="reference-alfworld",
        note=lambda tiny: f"played: {alfworld_games(_alfworld_sizes(tiny).games).source}",
    ),
    EnvBench(
        env="VirtualHome",
        contests=lambda tiny: virtualhome_contests(
            _TINY_VIRTUALHOME if tiny else VirtualHomeSizes()
        ),
        reference=VIRTUALHOME_REFERENCE,
        extra="dev",
        how=VIRTUALHOME_HOW,
        note=lambda tiny: "played: builtin houses",
    ),
    EnvBench(
        env="VisualSokoban",
        contests=lambda tiny: sokoban_contests(_TINY_SOKOBAN if tiny else SokobanSizes()),
        reference="gym_sokoban",
        extra="reference-sokoban",
    ),
    EnvBench(
        env="SOTOPIA",
        contests=lambda tiny: sotopia_contests(_TINY_SOTOPIA if tiny else SotopiaSizes()),
        reference=SOTOPIA_REFERENCE,
        extra="reference-sotopia",
    ),
    EnvBench(
        env="WebShop",
        # Chromium is measured too where it is, but not by a smoke test.
        contests=lambda tiny: (
            webshop_contests(_TINY_WEBSHOP)
            if tiny
            else [*webshop_contests(WebShopSizes()), *browser_contests()]
        ),
        reference=WEBSHOP_REFERENCE,
        extra="reference-webshop",
        how="git clone https://github.com/princeton-nlp/WebShop, put it on PYTHONPATH, and "
        + install_command("reference-webshop"),
    ),
)


def import_contest() -> Contest:
    """Return the measurement of ``import creditrl`` after Gymnasium's own import."""

    def prepare() -> Round:
        def measure() -> list[float]:
            told = subprocess.run(
                [sys.executable, "-P", "-c", _IMPORT], capture_output=True, text=True, check=True
            )
            return [1e3 * float(told.stdout.split()[0])]

        return measure

    return Contest(
        "import",
        "import creditrl, beyond Gymnasium's own import",
        "ms",
        "lower",
        {"ours": prepare},
        target=300.0,
    )


def report_table(
    title: str, contests: list[Contest], figures: dict[str, dict[Side, Figures]]
) -> Table:
    """Return min / median / max over rounds of both sides, and the ratio of the medians."""
    from creditrl.cli.console import table

    made = table("what", "unit", ">ours", ">theirs", ">ratio", ">asked", title=title)
    for contest in contests:
        sides = figures[contest.name]
        ours, theirs = sides["ours"], sides.get("theirs")
        made.add_row(
            contest.label,
            contest.unit,
            _cell(ours, contest.tail),
            "" if theirs is None else _cell(theirs, contest.tail),
            "" if theirs is None else _ratio(contest, ours, theirs),
            "" if contest.target is None else _asked(contest, ours),
        )
    return made


def report_json(
    contests: dict[str, list[Contest]],
    figures: dict[str, dict[str, dict[Side, Figures]]],
    rounds: int,
    notes: Mapping[str, str],
) -> dict[str, Any]:
    """Return everything that was measured; contests, figures and notes are by environment."""
    measured: dict[str, Any] = {}
    for env, some in contests.items():
        measured[env] = {}
        for contest in some:
            sides = figures[env][contest.name]
            entry: dict[str, Any] = {
                "what": contest.label,
                "unit": contest.unit,
                "better": contest.better,
                "target": contest.target,
                **{side: found.to_json() for side, found in sides.items()},
            }
            if "theirs" in sides:
                entry["ours_over_theirs"] = sides["ours"].median / sides["theirs"].median
            measured[env][contest.name] = entry
    references = {bench.env: importable(bench.reference) for bench in BENCHES}
    return {
        "format": 1,
        "creditrl": __version__,
        "machine": machine(),
        "rounds": rounds,
        "time": "CPU seconds of one process on one core",
        "reference_installed": references,
        "notes": dict(notes),
        "measured": measured,
    }


def _cell(found: Figures, tail: bool) -> str:
    shown = " / ".join(_number(x) for x in (min(found.rounds), found.median, max(found.rounds)))
    return f"{shown}, p95 {_number(found.p95)}" if tail else shown


def _ratio(contest: Contest, ours: Figures, theirs: Figures) -> str:
    if contest.better == "higher":
        return f"{_number(ours.median / theirs.median)} x"
    if contest.better == "lower":
        return f"{_number(theirs.median / ours.median)} x"
    return ""


def _asked(contest: Contest, ours: Figures) -> str:
    assert contest.target is not None
    found = ours.p95 if contest.target_tail else ours.median
    if contest.better == "higher":
        sign, kept = ">=", found >= contest.target
    else:
        sign, kept = "<=", found <= contest.target
    name = "p95 " if contest.target_tail else ""
    return f"{name}{sign} {_number(contest.target)}{'' if kept else ' MISSED'}"


def _number(value: float) -> str:
    """Three significant digits, with thousands separators and M for millions."""
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
