"""``creditrl report RUN...``: runs and evaluations side by side, as Markdown and as HTML."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, fields
from pathlib import Path

from creditrl.cli.console import next_step, wrote
from creditrl.errors import ConfigError, require_extra
from creditrl.flags import override

__all__ = ["run"]

_PROG = "creditrl report RUN..."


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Compare training runs and evaluations: tables and plots in Markdown and one HTML file.

    RUN is the folder of a training run, or a file of `creditrl eval`, SOTOPIA's goal tables
    included. Runs that differ in their seed alone are taken together.
    """

    analysis: bool = False
    """Add every analysis of the papers: success by type, split and expert length, the course of
    training, segments, exploration, states and rollouts, seeds, checkpoints."""
    baseline: str | None = None
    """The RUN (or its method) that the others are compared with; None: the first."""
    way: str = "sampled"
    """Which evaluation of training runs is compared: sampled or greedy."""
    target: float = 0.6
    """Share of solved tasks for "updates and turns until"."""
    expert: str | None = None
    """File of `creditrl eval ID --agent expert`: how many turns each task takes."""
    out: str | None = None
    """Folder for the report; None: the first free ``runs/report/N``."""
    schema: bool = False
    """Print the JSON schema of ``results.json`` and do nothing else."""


def run(argv: list[str]) -> int:
    """Write a report; returns the exit code."""
    paths, flags = _deal(argv)
    options = override(ReportOptions(), flags, _PROG)
    if options.schema:
        from creditrl.results import results_schema

        print(json.dumps(results_schema(), indent=1))
        return 0
    if not 0 < options.target <= 1:
        raise ConfigError(f"--target {options.target:g}: expected a share, above 0 up to 1.")
    from creditrl.report.build import build_report, expert_lengths, write_report
    from creditrl.report.goals import deal_goal_tables
    from creditrl.report.inputs import load_runs

    goals, others = deal_goal_tables(paths)
    runs = load_runs(others) if others or not goals else []
    require_extra("matplotlib", "train")
    report = build_report(
        runs,
        analysis=options.analysis,
        baseline=options.baseline,
        way=options.way,
        target=options.target,
        expert=None if options.expert is None else expert_lengths(options.expert),
        goals=goals,
    )
    page, text, *pictures = write_report(report, options.out or _free_folder())
    wrote(text, page)
    print(f"Beside it {len(pictures)} pictures, which the HTML file holds as well.")
    if options.analysis or not runs:
        next_step(f"open {page} in a browser")
    else:
        next_step(f"creditrl report {' '.join(paths)} --analysis")
    return 0


def _deal(argv: list[str]) -> tuple[list[str], list[str]]:
    """Return (runs, flags with their values), in whatever order they stand."""
    switches = [f.name for f in fields(ReportOptions) if isinstance(f.default, bool)]
    paths: list[str] = []
    flags: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            paths.append(word)
            continue
        flags.append(word)
        name = word.lstrip("-").removeprefix("no-").replace("-", "_")
        takes = name not in switches and "=" not in word and word not in ("-h", "--help")
        if takes and rest:
            flags.append(rest.pop(0))
    return paths, flags


def _free_folder() -> Path:
    folder = Path("runs") / "report"
    return next(path for n in itertools.count(1) if not (path := folder / str(n)).exists())
