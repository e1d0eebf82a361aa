"""``creditrl bench small``: results of the small recipes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from creditrl.cli.options import new_file, show_page, unknown_name
from creditrl.console import next_step
from creditrl.envs.register import DEFAULT_ENV
from creditrl.errors import ConfigError
from creditrl.flags import override

__all__ = ["bench_small"]


@dataclass(frozen=True, slots=True)
class BenchSmallOptions:
    """Train the small recipe of each environment with several seeds, and write all results.

    Each run takes about a quarter of an hour on two cores, evaluations included. Flags after ``--``
    go to ``creditrl train``.
    """

    envs: tuple[str, ...] = ()
    """Environments, e.g. VisualSokoban; none: all."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the runs."""
    folder: str = "runs/small"
    """Folder of the runs; finished runs are not trained again."""
    out: str | None = None
    """Write the page to this file; None: show it."""


def bench_small(argv: list[str]) -> int:
    """Train, measure, write; returns the exit code."""
    from creditrl.bench import small
    from creditrl.measure import machine

    # Words after "--" are for the trainer.
    cut = argv.index("--") if "--" in argv else len(argv)
    options = override(BenchSmallOptions(), argv[:cut], "creditrl bench small")
    more = argv[cut + 1 :]
    for env in options.envs:
        if env not in small.RECIPES:
            raise unknown_name(f"No small recipe for {env!r}", env, small.RECIPES)
    if not options.seeds:
        raise ConfigError("--seeds is empty: expected at least one seed, e.g. --seeds 0.")
    out = new_file(options.out, "--out")
    runs = []
    for env in options.envs or small.RECIPES:
        for seed in options.seeds:
            folder = small.train_small(env, seed, Path(options.folder), more)
            runs.append(small.measure_run(env, seed, folder))
    where = machine()
    words = f"{where['cpu']}, Python {where['python']}, NumPy {where['numpy']}"
    page = small.results_page(runs, words)
    show_page(page, out)
    next_step(f"creditrl train @{small.RECIPES[DEFAULT_ENV]}")
    return 0
