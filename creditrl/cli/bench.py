"""``creditrl bench envs``: speeds, ours beside upstream's."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from creditrl.cli.console import console, next_step, wrote
from creditrl.errors import ConfigError, RunFolderError, UnknownNameError, did_you_mean
from creditrl.flags import override

__all__ = ["run"]


@dataclass(frozen=True, slots=True)
class BenchEnvsOptions:
    """Measure the environments on one core, in CPU time, ours and upstream's by turns."""

    json: str | None = None
    """Write everything that was measured to this file."""
    rounds: int = 5
    """Rounds; the table shows min / median / max over them."""
    tiny: bool = False
    """Measure next to nothing: shows that everything runs."""


def run(argv: list[str]) -> int:
    """Run ``bench envs``."""
    prog = "creditrl bench envs"
    if not argv or argv[0] in ("-h", "--help"):
        override(BenchEnvsOptions(), ["--help"], prog)
    if argv[0] != "envs":
        raise UnknownNameError(
            f"No bench named {argv[0]!r}.{did_you_mean(argv[0], ('envs',))} Known: envs."
        )
    options = override(BenchEnvsOptions(), argv[1:], prog)
    if options.rounds < 1:
        raise ConfigError(f"--rounds is {options.rounds}: expected at least 1.")
    path = None if options.json is None else Path(options.json)
    if path is not None and path.exists():
        raise RunFolderError(f"{path} exists; nothing was overwritten. Choose another --json.")
    return _envs(options, path)


def _envs(options: BenchEnvsOptions, path: Path | None) -> int:
    from creditrl.bench.envs import BENCHES, import_contest, report_json, report_table
    from creditrl.bench.measure import Contest, Side, importable, machine, one_core, run_rounds

    contests = {bench.env: bench.contests(options.tiny) for bench in BENCHES}
    contests["package"] = [import_contest()]
    if options.tiny:
        # Rounds this short say nothing of speed, so nothing is asked of them.
        contests = {env: [replace(c, target=None) for c in some] for env, some in contests.items()}

    def told(number: int, contest: Contest, side: Side) -> None:
        if sys.stderr.isatty():
            line = f"round {number + 1}/{options.rounds}: {contest.name} ({side})"
            print(f"\r{line:<60}", end="", file=sys.stderr, flush=True)

    with one_core():
        figures = run_rounds([c for some in contests.values() for c in some], options.rounds, told)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    out = console()
    where = machine()
    print(f"{where['cpu']}, one core, Python {where['python']}, NumPy {where['numpy']}.")
    print(f"min / median / max over {options.rounds} rounds, CPU time.")
    for env, some in contests.items():
        out.print(report_table(env, some, figures))
    for bench in BENCHES:
        if not importable(bench.reference):
            print(
                f"{bench.reference} is not installed, so only ours was measured for {bench.env}. "
                f'In an environment of its own: pip install "creditrl[{bench.extra}]"'
            )
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = report_json(contests, figures, options.rounds)
        path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
        wrote(path)
        next_step(f"python -m json.tool {path}")
    else:
        next_step("creditrl bench envs --json bench.json")
    return 0
