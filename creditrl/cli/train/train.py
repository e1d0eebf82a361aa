"""``creditrl train @recipe --field value``: train an agent and print the result."""

from __future__ import annotations

import os
import shlex
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from creditrl.base.console import console, next_step, table, wrote
from creditrl.cli.options import import_training, require_training
from creditrl.cli.train.dry_run import show_dry_run
from creditrl.cli.train.help import HELP_ALL, HELPS, TrainOptions, show_help
from creditrl.cli.train.plan import show_plan
from creditrl.envs.register import short_name
from creditrl.errors import ConfigError, CreditRLError, LostRankError
from creditrl.plugins import named_flags
from creditrl.settings.flags import as_flags, read_flags, taken

if TYPE_CHECKING:
    from creditrl.trainers.after.result import TrainResult
    from creditrl.trainers.config import TrainConfig
    from creditrl.trainers.parallel.ranks import Ranks

_LOST = 1
"""Exit code of a process that ends because another one of its run has; it prints nothing."""


def train(argv: list[str]) -> int:
    """Train with a recipe; returns the exit code.

    Under torchrun every process comes here: ``torchrun --nproc-per-node 2 -m creditrl train ...``.
    The one that fails reports why, and the others end silently; errors in flags and files are
    reported once on each machine, because files may differ between machines.
    """
    require_training()
    if not HELPS.isdisjoint(argv):
        recipe, _, changes = _read([word for word in argv if word not in HELPS])
        show_help(recipe, changes, every=HELP_ALL in argv)
        return 0
    from creditrl.trainers.parallel.ranks import join, launched, lost_others
    from creditrl.trainers.start import read_request

    rank = launched()
    try:
        recipe, options, changes = _read(argv)
        config = read_request(recipe, changes, trust=options.trust)
    except CreditRLError:
        if rank and os.environ["LOCAL_RANK"] != "0":
            return _LOST  # the first process of this machine reports the error
        raise
    given = [*([recipe] if recipe else []), *as_flags(changes)]
    if options.plan:
        if not rank:
            show_plan(config, None if options.plan is True else options.plan, given)
        return 0

    import_training()
    if options.dry_run:
        if not rank:
            show_dry_run(config, given)
        return 0

    try:
        ranks = join(config.policy.device)
        with lost_others() if ranks.size > 1 else nullcontext():
            if ranks.rank:
                from creditrl.trainers.run import help_training

                help_training(config, ranks)
            else:
                _lead(config, argv, ranks, options.trust)
    except LostRankError:
        return _LOST
    ranks.leave()
    return 0


def _lead(config: TrainConfig, argv: list[str], ranks: Ranks, trust: bool) -> None:
    """Run the training, alone or as the leader of other ranks."""
    from creditrl.base.progress import Progress
    from creditrl.trainers.start import run_request

    command = shlex.join(["creditrl", "train", *argv, *named_flags()])
    with Progress() as progress:
        result = run_request(config, command, progress, ranks, trust=trust)
    _report(result)


def _read(words: list[str]) -> tuple[str | None, TrainOptions, dict[str, Any]]:
    """Return (the recipe, or None if none is named; the command's options; the recipe's flags)."""
    recipes = [word for word in words if word.startswith("@")]
    if len(recipes) > 1:
        raise ConfigError(f"Two recipes were named: {' and '.join(recipes)}. Expected one.")
    if words and not words[0].startswith(("@", "-")):
        raise ConfigError(
            f"Found {words[0]!r}, expected a recipe or a flag. A recipe, also one of your own, "
            f"begins with @: `creditrl train @{words[0]}`."
        )
    prog = " ".join(["creditrl train", *recipes])
    changes: dict[str, Any] = {
        **read_flags([word for word in words if not word.startswith("@")], prog)
    }
    return (recipes[0] if recipes else None), taken(TrainOptions(), changes), changes


def _report(result: TrainResult) -> None:
    """Print success before and after, the written files, and the next command."""
    out = console()
    config, summary = result.config, result.table()
    first, *others = summary.columns
    grid = table(first, *(f">{name}" for name in others), title=summary.title)
    for row in summary.rows:
        grid.add_row(*row)
    out.print()
    out.print(grid)
    spent = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in result.seconds.items())
    out.print(f"Time: {spent}; {sum(result.seconds.values()):.0f} s in all.")
    if result.parts:
        from creditrl.trainers.stopwatch import time_line

        out.print(time_line(result.parts))
    out.print(summary.note)
    wrote(result.folder, result.curve, result.folder / "results.json")
    words = ["creditrl", "eval", short_name(config.env.id)]
    words += config.agent.flags or ["--agent", "transformers"]
    next_step(shlex.join([*words, "--model", str(result.policy_folder), *_eval_flags(config)]))


def _eval_flags(config: TrainConfig) -> list[str]:
    """Return the flags of ``creditrl eval`` that repeat this run's sampled evaluation."""
    from creditrl.trainers.config import AgentConfig

    flags: dict[str, Any] = {}
    # Only values that differ from that command's defaults.
    if config.eval.temperature != 1.0:
        flags["temperature"] = config.eval.temperature
    if config.eval.split != "valid_unseen":
        flags["split"] = config.eval.split
    if config.eval.levels != 256:
        flags["episodes"] = config.eval.levels
    if config.run.seed:
        flags["seed"] = config.run.seed
    if config.agent.on and config.agent.timeout != AgentConfig().timeout:
        flags["timeout"] = config.agent.timeout
    if config.policy.lora is not None:
        # A folder of adapters does not store the reply length, unlike that of a whole model.
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
