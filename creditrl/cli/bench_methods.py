"""``creditrl bench methods``: success against environment turns, methods side by side."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from creditrl.cli.console import console, next_step, table, wrote
from creditrl.cli.options import require_training
from creditrl.cli.sweep import cores
from creditrl.errors import ConfigError
from creditrl.files import write_atomic
from creditrl.flags import override
from creditrl.metrics import plain_json
from creditrl.runs import find_versions

if TYPE_CHECKING:
    from creditrl.agents.intervals import Estimate
    from creditrl.bench.methods import Ablation, MethodResult

__all__ = ["bench_methods"]

_TINY = (
    "--policy.small.layers=1",
    "--policy.small.hidden=16",
    "--policy.small.heads=2",
    "--policy.tokenizer-episodes=16",
    "--clone.episodes=8",
    "--clone.updates=4",
    "--rollout.groups=2",
    "--rollout.group-size=4",
    "--env.options.min-optimal-moves=1",
    "--env.options.max-optimal-moves=3",
)


@dataclass(frozen=True, slots=True)
class BenchMethodsOptions:
    """Train the small policy on VisualSokoban by several methods, and compare on held-out levels.

    For one seed all methods begin from the same cloned weights and play as many environment turns,
    exploration before training counted. Finished runs lie in the folder; the same command goes on.
    """

    methods: tuple[str, ...] = ()
    """Methods with a recipe @METHOD_small; none: grpo gigpo spa istar hisr three_spo."""
    seeds: int = 5
    """Seeds 0, 1, ..."""
    turns: int = 400_000
    """Environment turns of a run."""
    levels: int = 500
    """Held-out levels of split valid_unseen, shared by all."""
    first_level: int = 1500
    """The first of them; the quick start reports levels 0 to 999."""
    ablations: bool = False
    """Also run one ablation per method that shows what limits it here."""
    ablation_seeds: int = 2
    """Seeds of the ablations."""
    workers: int = 0
    """Runs side by side, one thread each; 0: one per core."""
    folder: str = "runs/bench_methods"
    """Folder of runs, table, JSON and picture."""
    tiny: bool = False
    """Measure next to nothing: shows that everything runs."""


def bench_methods(argv: Sequence[str]) -> int:
    """Run the bench; exit code 1 where a run failed."""
    options = override(BenchMethodsOptions(), argv, "creditrl bench methods")
    if options.seeds < 1 or options.ablation_seeds < 1 or options.turns < 1:
        raise ConfigError(
            f"--seeds {options.seeds} --ablation-seeds {options.ablation_seeds} --turns "
            f"{options.turns}: expected at least 1 each."
        )
    require_training()
    from creditrl.bench.methods import ABLATIONS, METHODS, BenchPlan, plan_runs, summarise
    from creditrl.trainers.many import run_many
    from creditrl.view.method_curves import method_curves

    plan = BenchPlan(
        methods=options.methods or METHODS,
        seeds=tuple(range(options.seeds)),
        turns=options.turns,
        levels=options.levels,
        first=options.first_level,
        points=2 if options.tiny else 20,
        flags=_TINY if options.tiny else (),
    )
    ablations: Mapping[str, Ablation] = {}
    runs = plan_runs(plan, {})
    if options.ablations:
        ablations = {name: ABLATIONS[name] for name in plan.methods if name in ABLATIONS}
        fewer = BenchPlan(
            **{
                **{name: getattr(plan, name) for name in plan.__dataclass_fields__},
                "seeds": plan.seeds[: options.ablation_seeds],
            }
        )
        runs += [run for run in plan_runs(fewer, ablations) if "+" in run.name]
    folder = Path(options.folder)
    out = console()
    out.print(f"{len(runs)} runs in {folder}", soft_wrap=True)
    failed = run_many(
        runs,
        folder,
        workers=options.workers or cores(),
        show=lambda line: out.print(line, soft_wrap=True),
    )
    results, more = summarise(folder, plan, ablations)
    levels = f"levels {plan.first} to {plan.first + plan.levels - 1} of valid_unseen"
    title = f"VisualSokoban, {plan.turns:,} turns a run, {levels}, 95 % intervals"
    shown = table(*_COLUMNS, title=title)
    for row in _rows(results, ablations):
        shown.add_row(*row)
    out.print()
    out.print(shown)
    markdown, data = folder / "methods.md", folder / "methods.json"
    write_atomic(markdown, _markdown(title, _rows(results, ablations)))
    content = {
        "title": title,
        "plan": asdict(plan),
        "ablations": {name: asdict(ablation) for name, ablation in ablations.items()},
        "results": [asdict(result) for result in results],
        "failed": failed,
        "versions": find_versions(),
        **more,
    }
    write_atomic(data, json.dumps(plain_json(content), indent=1) + "\n")
    curves = method_curves(
        more["curves"],
        folder / "methods.png",
        title=f"VisualSokoban, 2 to 8 moves, {len(plan.seeds)} seeds",
    )
    wrote(markdown, data, curves)
    for name, error in failed.items():
        out.print(f"Failed: {name}: {error}", soft_wrap=True)
    if failed:
        next_step(shlex.join(["creditrl", "bench", "methods", *argv]))
    elif not options.ablations:
        next_step(shlex.join(["creditrl", "bench", "methods", *argv, "--ablations"]))
    return 1 if failed else 0


_COLUMNS = (
    "method",
    ">seeds",
    ">success, T=1",
    ">greedy",
    ">difference, T=1",
    ">turns",
    ">updates",
    ">minutes of a core",
    ">states per rollout",
    ">per 1,000 turns",
)


def _rows(results: Sequence[MethodResult], ablations: Mapping[str, Ablation]) -> list[list[str]]:
    rows = []
    for result in results:
        name = result.method
        against = ""
        if result.ablation:
            name += f", {ablations[result.method].words}"
        if result.difference is not None:
            against = _points(result.difference)
        rows.append(
            [
                name,
                str(len(result.seeds)),
                _share(result.sampled),
                _share(result.greedy),
                against,
                f"{result.turns:,.0f}",
                f"{result.updates:,.0f}",
                f"{result.cpu_seconds / 60:.1f}",
                f"{result.states_per_rollout:.2f}",
                f"{result.states_per_1000_turns:.1f}",
            ]
        )
    starts = [result for result in results if not result.ablation]
    if starts:
        most = max(starts, key=lambda result: len(result.seeds))
        clone = ["(the clones)", str(len(most.seeds)), _share(most.before)]
        rows.insert(0, [*clone, *[""] * (len(_COLUMNS) - len(clone))])
    return rows


def _share(e: Estimate) -> str:
    return f"{100 * e.value:.1f} % [{100 * e.low:.1f}, {100 * e.high:.1f}]"


def _points(e: Estimate) -> str:
    return f"{100 * e.value:+.1f} [{100 * e.low:+.1f}, {100 * e.high:+.1f}]"


def _markdown(title: str, rows: Sequence[Sequence[Any]]) -> str:
    heads = [name.removeprefix(">") for name in _COLUMNS]
    lines = [title, "", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
