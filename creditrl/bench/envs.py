"""The environments that ``creditrl bench envs`` measures, and what it reports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from creditrl._version import __version__
from creditrl.envs.bench import EnvBench
from creditrl.envs.record import load
from creditrl.envs.register import known_records
from creditrl.measure import Contest, Figures, Round, Side, importable, machine

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["env_benches", "import_contest", "report_json", "report_table"]

_IMPORT = (
    "import sys, time, gymnasium; n = len(sys.modules); t = time.process_time(); import creditrl; "
    "print(time.process_time() - t, len(sys.modules) - n)"
)


def env_benches() -> tuple[EnvBench, ...]:
    """Return the measurements that environments define."""
    return tuple(load(record.bench) for record in known_records() if record.bench)


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
    from creditrl.console import table

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
    """Return all measurements; contests, figures and notes are by environment."""
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
    references = {bench.env: importable(bench.reference) for bench in env_benches()}
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
