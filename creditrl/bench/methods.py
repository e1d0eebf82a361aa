"""Methods side by side: success against environment turns, equal budgets, equal starts, many seeds.

Every method trains the small policy of its recipe ``@METHOD_small`` on VisualSokoban. For one seed
all begin from the very same cloned weights, which is checked, and play as many environment turns,
exploration before training counted. All are measured on the same held-out levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from creditrl.agents.intervals import Estimate, mean_interval, paired_interval
from creditrl.config import known_recipes
from creditrl.errors import ConfigError, DataError, UnknownNameError, did_you_mean
from creditrl.trainers.finished import FinishedRun, success_table
from creditrl.trainers.many import PlannedRun
from creditrl.types import FloatArray

if TYPE_CHECKING:
    from creditrl.trainers.config import TrainConfig

__all__ = [
    "ABLATIONS",
    "BASELINE",
    "METHODS",
    "Ablation",
    "BenchPlan",
    "MethodResult",
    "compare",
    "plan_runs",
    "summarise",
]

METHODS = ("grpo", "gigpo", "spa", "istar", "hisr", "three_spo")
"""What is compared unless the user names others."""
BASELINE = "grpo"
"""What the others are compared with."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """A method with one thing changed, to see what that thing is worth here."""

    name: str
    """In file names and tables."""
    flags: tuple[str, ...]
    words: str
    """What is changed, in words."""


ABLATIONS: Mapping[str, Ablation] = {
    "grpo": Ablation(
        "invalid-penalty",
        ("--method.invalid-penalty=0.1",),
        "0.1 off the advantage of turns whose action was not executed",
    ),
    # Without its step groups it would be GRPO here, which is measured anyway.
    "gigpo": Ablation(
        "undiscounted",
        ("--method.gamma=1",),
        "returns that are compared at a state not discounted",
    ),
    "spa": Ablation(
        "mean-progress",
        ("--method.progress=mean",),
        "the outcome spread evenly over the turns instead of the learned progress, no exploration",
    ),
    "istar": Ablation(
        "true-steps",
        ("--method.process=environment",),
        "the environment's own step rewards instead of the implicit ones",
    ),
    "hisr": Ablation("no-hindsight", ("--method.no-him",), "segment rewards without hindsight"),
    "three_spo": Ablation(
        "novelty", ("--method.scores.novelty",), "turn rewards with the paper's novelty term"
    ),
}
"""One change per method that shows what limits it here."""


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """What is measured."""

    methods: tuple[str, ...] = METHODS
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    turns: int = 400_000
    """Environment turns of a run, exploration before training included."""
    levels: int = 500
    """Held-out levels."""
    first: int = 1500
    """The first of them in split valid_unseen. The quick start reports levels 0 to 999."""
    points: int = 20
    """Evaluations on validation levels (split valid_seen) while a run trains."""
    flags: tuple[str, ...] = ()
    """Changes of every recipe, for tests."""


@dataclass(frozen=True, slots=True)
class MethodResult:
    """What the runs of a method, or of an ablation, came to."""

    method: str
    ablation: str
    """Empty for the method itself."""
    seeds: tuple[int, ...]
    sampled: Estimate
    """Success at temperature 1; interval over levels and seeds."""
    greedy: Estimate
    before: Estimate
    """Success at temperature 1 of the cloned policies."""
    difference: Estimate | None
    """Of success at temperature 1: the method's to the baseline's, an ablation's to its method's;
    paired by level and seed. None where there is nothing to compare with."""
    by_seed: tuple[float, ...]
    """Success at temperature 1 of every seed."""
    difference_over_seeds: Estimate | None
    """The same difference with Student's interval over the seeds' means."""
    turns: float
    """Environment turns, mean over seeds."""
    updates: float
    seconds: float
    """Wall time of a run, mean over seeds."""
    cpu_seconds: float
    """Processor time of a run on one thread, mean over seeds: what a quiet core takes."""
    states_per_rollout: float
    """Different states of the training over finished rollouts, mean over seeds."""
    states: float
    """Different states of the training, mean over seeds."""
    states_per_1000_turns: float
    """The same by equal use of the environment: a branch of a tree may be a single turn."""


def plan_runs(plan: BenchPlan, ablations: Mapping[str, Ablation]) -> list[PlannedRun]:
    """Return every run, a seed after the other, so that a cut bench has whole seeds.

    Args:
        plan: what is measured.
        ablations: by method; run as well.

    Raises:
        UnknownNameError: a method has no recipe ``@METHOD_small``.
        ConfigError: the recipes differ in more than the method and its optimizer.
    """
    known = [name.removesuffix("_small") for name in known_recipes() if name.endswith("_small")]
    for method in plan.methods:
        if method not in known:
            raise UnknownNameError(
                f"Method {method!r} has no recipe @{method}_small.{did_you_mean(method, known)} "
                f"Known: {', '.join(known)}."
            )
    runs = []
    for seed in plan.seeds:
        for method in plan.methods:
            runs.append(_planned(plan, method, seed, None))
        for method, ablation in ablations.items():
            runs.append(_planned(plan, method, seed, ablation))
    _check_equal({run.recipe: run.config() for run in runs})
    return runs


def run_name(method: str, seed: int, ablation: Ablation | None) -> str:
    """Return the name of a run's folder."""
    changed = "" if ablation is None else f"+{ablation.name}"
    return f"{method}{changed}-seed{seed}"


def _planned(plan: BenchPlan, method: str, seed: int, ablation: Ablation | None) -> PlannedRun:
    every = max(1, plan.turns // plan.points)
    flags = (
        "--budget.seconds=None",
        "--budget.updates=None",
        f"--budget.turns={plan.turns}",
        "--eval.split=valid_unseen",
        f"--eval.first={plan.first}",
        f"--eval.levels={plan.levels}",
        "--eval.validation-split=valid_seen",
        f"--eval.validation-levels={min(128, plan.levels)}",
        f"--eval.every-turns={every}",
        "--eval.temperature=1",
        "--eval.greedy",
        "--run.trajectories-every=0",
        "--run.checkpoint-every=50",
        "--run.count-states",
        *plan.flags,
        f"--run.seed={seed}",
        *(() if ablation is None else ablation.flags),
    )
    return PlannedRun(run_name(method, seed, ablation), f"@{method}_small", flags)


def _check_equal(configs: Mapping[str, TrainConfig]) -> None:
    """Raise where recipes differ in what must be equal for methods to be comparable."""
    (first, one), *others = configs.items()
    for name, other in others:
        for section in ("env", "policy", "clone", "rollout", "budget", "eval"):
            if getattr(other, section) != getattr(one, section):
                raise ConfigError(
                    f"Recipes {first} and {name} differ in [{section}]: methods are compared on "
                    "equal environments, policies, clones, rollouts and budgets."
                )


def read_runs(
    folder: Path, method: str, seeds: Sequence[int], ablation: Ablation | None
) -> dict[int, FinishedRun]:
    """Return the finished runs of a method by seed."""
    from creditrl.trainers.many import is_finished

    paths = {seed: folder / run_name(method, seed, ablation) for seed in seeds}
    return {seed: FinishedRun.read(path) for seed, path in paths.items() if is_finished(path)}


def check_starts(runs: Sequence[Mapping[int, FinishedRun]]) -> dict[int, str]:
    """Return the digest of the cloned weights by seed, the same for every method.

    Raises:
        DataError: two runs of one seed began with other weights.
    """
    found: dict[int, FinishedRun] = {}
    for by_seed in runs:
        for seed, run in by_seed.items():
            first = found.setdefault(seed, run)
            if run.start_weights != first.start_weights:
                raise DataError(
                    f"{run.folder} and {first.folder} have the same seed but began with other "
                    "weights; runs of one bench must come from one version and machine."
                )
    return {seed: run.start_weights for seed, run in found.items()}


def compare(
    method: str,
    ablation: str,
    runs: Mapping[int, FinishedRun],
    other: Mapping[int, FinishedRun] | None,
) -> MethodResult:
    """Return what some runs came to, and how they differ from those of the same seeds.

    Args:
        method: its name.
        ablation: its name; empty for the method itself.
        runs: by seed, at least one.
        other: what they are compared with; None: nothing.
    """
    seeds = tuple(sorted(runs))
    mine = [runs[seed] for seed in seeds]
    sampled_KS = success_table(mine, "sampled")
    difference = over_seeds = None
    if other is not None:
        both = [seed for seed in seeds if seed in other]
        if both:
            theirs_KS = success_table([other[seed] for seed in both], "sampled")
            gap_KS = success_table([runs[seed] for seed in both], "sampled") - theirs_KS
            difference = paired_interval(gap_KS)
            over_seeds = mean_interval(gap_KS.mean(axis=0).tolist(), bounds=(-1.0, 1.0))
    seen = [float(run.metrics.get("states_seen", np.nan)) for run in mine]
    rollouts = [float(run.metrics.get("rollouts_done", np.nan)) for run in mine]
    return MethodResult(
        method=method,
        ablation=ablation,
        seeds=seeds,
        sampled=paired_interval(sampled_KS),
        greedy=paired_interval(success_table(mine, "greedy")),
        before=paired_interval(success_table(mine, "sampled", before=True)),
        difference=difference,
        by_seed=tuple(float(value) for value in sampled_KS.mean(axis=0)),
        difference_over_seeds=over_seeds,
        turns=_mean(run.turns for run in mine),
        updates=_mean(run.updates for run in mine),
        seconds=_mean(sum(run.seconds.values()) for run in mine),
        cpu_seconds=_mean(run.cpu_seconds for run in mine),
        states_per_rollout=_mean(s / max(1.0, r) for s, r in zip(seen, rollouts, strict=True)),
        states=_mean(seen),
        states_per_1000_turns=_mean(
            1000 * s / max(1, run.turns) for s, run in zip(seen, mine, strict=True)
        ),
    )


def summarise(
    folder: Path, plan: BenchPlan, ablations: Mapping[str, Ablation]
) -> tuple[list[MethodResult], dict[str, Any]]:
    """Return the results of every method and ablation with finished runs, and what plots need.

    Returns:
        The results in the order of the plan, ablations last, and a mapping with the digests of the
        starts (``"starts"``) and the curves (``"curves"``): by method ``"turns_T"`` and
        ``"success_ST"``.

    Raises:
        DataError: runs of one seed did not begin alike, or were evaluated on other levels.
    """
    whole = {m: read_runs(folder, m, plan.seeds, None) for m in plan.methods}
    changed = {m: read_runs(folder, m, plan.seeds, a) for m, a in ablations.items()}
    starts = check_starts([*whole.values(), *changed.values()])
    results = [
        compare(m, "", runs, whole.get(BASELINE) if m != BASELINE else None)
        for m, runs in whole.items()
        if runs
    ]
    results += [
        compare(m, ablations[m].name, runs, whole.get(m)) for m, runs in changed.items() if runs
    ]
    curves = {m: curve_of(list(runs.values()), plan) for m, runs in whole.items() if runs}
    return results, {"starts": starts, "curves": curves}


def curve_of(runs: Sequence[FinishedRun], plan: BenchPlan) -> dict[str, FloatArray]:
    """Return validation success of each run at equal places, between its own evaluations linear."""
    turns_T = np.linspace(0, plan.turns, plan.points + 1)
    success_ST = np.stack(
        [
            np.interp(turns_T, *np.array(sorted(run.curve), dtype=np.float64).T)
            if run.curve
            else np.full(len(turns_T), np.nan)
            for run in runs
        ]
    )
    return {"turns_T": turns_T, "success_ST": success_ST}


def _mean(values: Any) -> float:
    return float(np.mean(list(values)))
