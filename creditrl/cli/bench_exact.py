"""``creditrl bench exact``: the credit of every method against exact advantages, in a minute."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

from creditrl.cli.options import new_file, require_training
from creditrl.console import console, next_step, table, wrote
from creditrl.errors import ConfigError
from creditrl.files import write_atomic
from creditrl.flags import override

__all__ = ["bench_exact"]

_SHOWN = {
    "within": "Actions of one state ordered as their values are, %",
    "cosine": "Cosine with the true policy gradient",
    "signal": "Signal-to-noise of the gradient, per 1,000 turns",
    "leakage": "Credit of turns that change nothing, % of all",
}
_UNITS = {"within": 100.0, "cosine": 1.0, "signal": 1000.0, "leakage": 100.0}


@dataclass(frozen=True, slots=True)
class BenchExactOptions:
    """Score episodes of five tiny tasks, whose true advantages are computed, by every method.

    A small policy that was never trained plays them; learned models are fitted to other episodes.
    """

    methods: tuple[str, ...] = ()
    """Methods, e.g. grpo spa; none: all."""
    groups: int = 32
    """Groups of episodes of each task."""
    group_size: int = 8
    """Episodes of a group."""
    seed: int = 0
    """Seed of the policy, the episodes and the learned models."""
    json: str | None = None
    """Write all measures to this file."""


def bench_exact(argv: list[str]) -> int:
    """Measure and show; returns the exit code."""
    options = override(BenchExactOptions(), argv, "creditrl bench exact")
    for name in ("groups", "group_size"):
        if getattr(options, name) < 2:
            raise ConfigError(
                f"--{name.replace('_', '-')} is {getattr(options, name)}: expected at least 2."
            )
    path = new_file(options.json)
    require_training()
    from creditrl.bench.credit_settings import method_names
    from creditrl.bench.exact import measure
    from creditrl.bench.exact_mdps import MDPS

    names = method_names(options.methods)
    found, seconds, unscored = measure(names, options.groups, options.group_size, options.seed)
    tasks = [mdp.name for mdp in MDPS]
    for measured, title in _SHOWN.items():
        shown = table("method", *(f">{task}" for task in tasks), title=title)
        for name in (name for name in names if name in seconds):
            values = [getattr(found[name, task], measured) for task in tasks]
            digits = 2 if measured in ("cosine", "signal") else 0
            cells = [
                "" if math.isnan(value) else f"{_UNITS[measured] * value:.{digits}f}"
                for value in values
            ]
            shown.add_row(name, *cells)
        console().print(shown)
    for name, why in unscored.items():
        print(f"{name} scores nothing here: {why}")
    if path is not None:
        rows = [
            {"method": name, "task": task}
            # JSON has no NaN.
            | {key: None if math.isnan(value) else value for key, value in asdict(result).items()}
            for (name, task), result in found.items()
        ]
        content = {
            "groups": options.groups,
            "group_size": options.group_size,
            "seed": options.seed,
            "cpu_seconds": seconds,
            "unscored": unscored,
            "rows": rows,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(content, indent=1) + "\n")
        wrote(path)
    next_step("creditrl bench credit --tiny --out truth")
    return 0
