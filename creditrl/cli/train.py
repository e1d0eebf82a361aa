"""``creditrl train @recipe --field value``: train an agent and say what came of it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from creditrl.cli.console import console, next_step, table, wrote
from creditrl.cli.options import require_training, short_name
from creditrl.cli.plan import plan_line, show_plan, take_plan_flag
from creditrl.config import find_recipe, read_toml
from creditrl.errors import ConfigError, CreditRLError, LostRankError
from creditrl.runs import RunFolder, default_run_path
from creditrl.trust import (
    flags_given,
    is_run_config,
    links_out,
    reaching,
    require_trust,
    take_trust,
)

if TYPE_CHECKING:
    from creditrl.agents.evaluate import EvalResult
    from creditrl.trainers.config import TrainConfig
    from creditrl.trainers.ranks import Ranks
    from creditrl.trainers.run import Outcome

__all__ = ["train"]

_LOST = 1
"""Exit code of a process that ends because another one of its run has; it says nothing."""
_USAGE = (
    "Which recipe? Expected `creditrl train @quickstart`, `creditrl train @path/to/recipe.toml` "
    "or `creditrl train --run.folder RUN --run.resume`."
)


def train(argv: list[str]) -> int:
    """Train with a recipe; returns the exit code.

    ``--plan`` prints what the run needs of memory and starts nothing; ``--plan=80`` against a GPU
    of so many GiB. ``--trust`` lets a run go on whose config names plugins, or reaches out.

    Under torchrun every process comes here: ``torchrun --nproc-per-node 2 -m creditrl train ...``.
    The one that fails says why, and the others end with it, without a word; what is wrong with
    flags and files is said once on each machine, whose files may be others.
    """
    require_training()
    from creditrl.trainers.ranks import join, launched, lost_others

    rank = launched()
    given, planned, gib = take_plan_flag(argv)
    given, trust = take_trust(given)
    try:
        config = _resolved(given, trust)
    except CreditRLError:
        if rank and os.environ["LOCAL_RANK"] != "0":
            return _LOST  # the first process of this machine says what is wrong here
        raise
    if planned:
        if not rank:
            show_plan(config, gib, given)
        return 0

    try:
        ranks = join(config.policy.device)
        with lost_others() if ranks.size > 1 else nullcontext():
            if ranks.rank:
                from creditrl.trainers.run import help_training

                help_training(config, ranks)
            else:
                _lead(config, argv, ranks, trust)
    except LostRankError:
        return _LOST
    ranks.leave()
    return 0


def _lead(config: TrainConfig, argv: list[str], ranks: Ranks, trust: bool) -> None:
    """Run the training, alone or with other ranks that help."""
    command = shlex.join(["creditrl", "train", *argv])
    folder = _folder(config, command, trust)

    from creditrl.trainers.run import run_training
    from creditrl.view.progress import Progress

    with folder.held(), Progress() as progress:
        if config.run.resume:
            folder.add_command(command)
        progress.line(plan_line(config))
        outcome = run_training(config, folder, progress, ranks)
    _report(config, outcome)


def _resolved(given: list[str], trust: bool) -> TrainConfig:
    """Return the config that a recipe, or a run to go on with, and flags make.

    A recipe that the user names may do what it says; a run's folder may be anybody's.
    """
    from creditrl.trainers.config import resolve

    recipes = [word for word in given if word.startswith("@")]
    flags = [word for word in given if not word.startswith("@")]
    if len(recipes) > 1:
        raise ConfigError(f"Two recipes were named: {' and '.join(recipes)}. Expected one.")
    data: Mapping[str, Any]
    if recipes:
        source = find_recipe(recipes[0])
        where = f"recipe {source.name}"
        data = read_toml(source)
        of_run = is_run_config(source)
    else:
        data, where = _of_run(flags)
        of_run = True
    helps = "--help" in flags or "-h" in flags
    if of_run and not trust and not helps:
        require_trust(where, reaching(data), flags_given(flags))
    prog = f"creditrl train {recipes[0] if recipes else ''}".strip()
    return resolve(data, flags, where, prog, trust=(trust or not of_run) and not helps)


def _of_run(flags: list[str]) -> tuple[Mapping[str, Any], str]:
    """Return the config of the run that is to be resumed."""
    folder = None
    for at, word in enumerate(flags):
        if word.startswith("--run.folder="):
            folder = word.removeprefix("--run.folder=")
        elif word == "--run.folder" and at + 1 < len(flags):
            folder = flags[at + 1]
    if "--help" in flags or "-h" in flags:
        return {}, "defaults"
    if folder is None or "--run.resume" not in flags:
        raise ConfigError(_USAGE)
    path = Path(folder) / "config.toml"
    if not path.is_file():
        raise ConfigError(f"{path} does not exist: --run.resume needs the folder of a run.")
    return read_toml(path), str(path)


def _folder(config: TrainConfig, command: str, trust: bool) -> RunFolder:
    run = config.run
    if run.resume:
        if run.folder is None:
            raise ConfigError("--run.resume needs --run.folder: which run goes on?")
        links = [] if trust else links_out(Path(run.folder))
        if links:
            raise ConfigError(
                f"{run.folder} has links that lead out of it: {', '.join(links)}. Going on writes "
                "and removes files there; nothing was done. If they are yours, add --trust."
            )
        return RunFolder.open(run.folder)
    path = run.folder or default_run_path(run.root, run.name, config.method.name)
    return RunFolder.create(path, config, command)


def _report(config: TrainConfig, outcome: Outcome) -> None:
    """Print success before and after, what was written, and the next command."""
    out = console()
    cfg = config.eval
    shown = table(
        "policy",
        f">success, T={cfg.temperature:g}",
        *([">success, greedy"] if cfg.greedy else []),
        ">turns",
        ">grounding",
        title=f"{short_name(config.env.id)}: {cfg.levels} held-out levels ({cfg.split}), "
        "95 % intervals",
    )
    for label, results in (
        ("before", outcome.before),
        (f"after {config.method.name}", outcome.after),
        ("best on validation", outcome.best),
        ("cloned for the same time", outcome.cloned),
    ):
        if results:
            sampled = results["sampled"].overall
            shown.add_row(
                label,
                *(_percent(result) for result in results.values()),
                f"{sampled.turns.value:.1f}",
                f"{100 * sampled.grounding.value:.0f} %",
            )
    out.print()
    out.print(shown)
    spent = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in outcome.seconds.items())
    out.print(f"Time: {spent}; {sum(outcome.seconds.values()):.0f} s in all.")
    if outcome.parts:
        from creditrl.trainers.stopwatch import time_line

        out.print(time_line(outcome.parts))
    for line in _verdicts(config, outcome):
        out.print(line)
    wrote(outcome.folder, outcome.curve, outcome.folder / "results.json")
    policy = outcome.folder / "policy" / "last"
    words = ["creditrl", "eval", short_name(config.env.id), "--agent", "transformers"]
    next_step(shlex.join([*words, "--model", str(policy), *_eval_flags(config)]))


def _verdicts(config: TrainConfig, outcome: Outcome) -> list[str]:
    """Say in plain words which intervals are apart."""
    lines = []
    after = outcome.after["sampled"].overall.success
    for name, results in (
        ("before training", outcome.before),
        ("the policy cloned for the same time", outcome.cloned),
    ):
        if results:
            other = results["sampled"].overall.success
            apart = after.low > other.high or after.high < other.low
            lines.append(
                f"After training against {name}: {100 * (after.value - other.value):+.1f} points; "
                f"the intervals {'are apart' if apart else 'overlap'}."
            )
    return lines


def _percent(result: EvalResult) -> str:
    success = result.overall.success
    return f"{100 * success.value:.1f} % [{100 * success.low:.1f}, {100 * success.high:.1f}]"


def _eval_flags(config: TrainConfig) -> list[str]:
    """Return the flags of ``creditrl eval`` that repeat this run's sampled evaluation."""
    flags: dict[str, Any] = {}
    # Only what differs from that command's defaults.
    if config.rollout.form != "plain":
        flags["form"] = config.rollout.form
    if config.rollout.actions != "free":
        flags["actions"] = config.rollout.actions
    if config.eval.temperature != 1.0:
        flags["temperature"] = config.eval.temperature
    if config.eval.split != "valid_unseen":
        flags["split"] = config.eval.split
    if config.policy.lora is not None:
        # A folder of adapters does not hold the length of replies as a whole model's does.
        flags["max_new_tokens"] = config.rollout.max_new_tokens
    options = config.env.options
    usual = type(options)()
    for name in options.__dataclass_fields__:
        if name != "split" and getattr(options, name) != getattr(usual, name):
            flags[name] = getattr(options, name)
    words = []
    for name, value in flags.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            values = value if isinstance(value, (tuple, list)) else (value,)
            words += [f"--{flag}", *map(str, values)]
    return words
