"""``creditrl credit RUN --method a,b,c``: score a run's stored episodes with many methods."""

from __future__ import annotations

import importlib.util
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from creditrl.bench.credit_agreement import agreement, disagreements
from creditrl.cli.console import console, next_step, say, table, wrote
from creditrl.cli.options import show_plugins_left
from creditrl.config import config_hash, find_recipe, known_recipes, read_toml
from creditrl.credit_file import CreditFile, turn_rows
from creditrl.errors import ConfigError, CreditRLError, MissingExtraError, require_extra
from creditrl.flags import override
from creditrl.locks import Lock
from creditrl.runs import RunFolder
from creditrl.trust import is_run_config

if TYPE_CHECKING:
    from creditrl.trainers.config import TrainConfig
    from creditrl.trainers.methods.base import Method
    from creditrl.types import Trajectory

__all__ = ["CreditOptions", "run"]

PROG = "creditrl credit"
_COLUMNS = 14
"""Methods side by side in a block of the table of correlations."""
_USAGE = f"Expected `{PROG} RUN --method gigpo,istar` (RUN: a folder that `creditrl train` made)."


@dataclass(frozen=True, slots=True)
class CreditOptions:
    """Score the stored episodes of a run with credit methods side by side; nothing is trained."""

    method: str = ""
    """Methods, separated by commas; "all": every one. "@recipe" takes a method with a recipe's
    numbers. By itself the run's own method has the run's numbers, and another one those of its
    small recipe where the run's policy is the small one, else its paper's."""
    updates: str = ""
    """Updates whose episodes are scored, e.g. "3,10-20"; empty: all that are stored."""
    max_episodes: int = 512
    """Most episodes, of the newest updates, in whole groups."""
    seed: int = 0
    """Of learned models and of the halves by which they are held out."""
    passes: int = 0
    """Passes over a half by which models that learn update by update are fitted; 0: the default."""
    replace: bool = False
    """Score methods anew whose credits are stored already."""
    top: int = 5
    """Turns shown over which the methods part most."""
    plugin: tuple[str, ...] = ()
    """Modules or files to import that register further methods. Those that the run's config names
    are somebody's code: they are imported where they are named here."""
    trust: bool = False
    """Import all plugins that the run's config names."""


def run(argv: list[str]) -> int:
    """Score, store and compare; returns the exit code."""
    if importlib.util.find_spec("creditrl.trainers") is None:
        raise MissingExtraError("This installation has no trainers; install the whole package.")
    named = [argv[0]] if argv and not argv[0].startswith("-") else []
    options = override(CreditOptions(), argv[len(named) :], f"{PROG} RUN")
    if not named or not options.method:
        raise ConfigError(f"Which {'methods' if named else 'run'}? {_USAGE}")
    for module in ("torch", "transformers", "peft", "pyarrow", "zstandard"):
        require_extra(module, "train")
    if options.max_episodes < 1 or options.passes < 0 or options.top < 0:
        raise ConfigError(
            f"max_episodes={options.max_episodes}, passes={options.passes}, top={options.top}: "
            "expected at least 1, 0 and 0."
        )
    from creditrl.trainers.config import resolve

    folder = RunFolder.open(named[0])
    where = folder.path / "config.toml"
    data = read_toml(where)
    config = resolve(data, [], str(where), PROG, trust=options.trust, plugins=options.plugin)
    if not options.trust:
        show_plugins_left(data, options.plugin)
    if config.run.threads:
        import torch

        torch.set_num_threads(config.run.threads)
    methods, notes = _methods(options, config)
    path = folder.path / "credit.parquet"
    # Read, added to and written whole: of two at once one would lose the other's.
    with Lock(folder.path / ".credit.lock", str(path)):
        stored = CreditFile.read(path)
        if not options.replace:
            stored.require_free(methods)
        chosen = _episodes(folder, config, options)
        refused = _score(folder, config, options, methods, notes, chosen, stored)
        done = [name for name in methods if name not in refused]
        for name, error in refused.items():
            say(f"Not scored: {name}: {' '.join(str(error).split())}")
        if not done:
            raise ConfigError(f"None of the methods can score this run; {path} was left as it was.")
        stored.write(path)
    _report(stored, options.top)
    wrote(path)
    rest = [name for name in _known() if name not in stored.credit and name not in refused]
    run_word = shlex.quote(named[0])
    if rest:
        next_step(f"{PROG} {run_word} --method {','.join(rest[:3])}")
    else:
        next_step(f"creditrl report {run_word}")
    return 0


def _known() -> list[str]:
    from creditrl.trainers.methods import list_methods

    return [info.name for info in list_methods()]


def _methods(
    options: CreditOptions, config: TrainConfig
) -> tuple[dict[str, Method[Any]], dict[str, dict[str, Any]]]:
    """Return methods by label, and where the numbers of each come from."""
    from creditrl.bench.credit import bench_method
    from creditrl.trainers.config import resolve
    from creditrl.trainers.methods import method_info

    methods: dict[str, Method[Any]] = {}
    notes: dict[str, dict[str, Any]] = {}
    asked = [word.strip() for word in options.method.split(",") if word.strip()]
    for word in _known() if asked == ["all"] else asked:
        name, label, settings = word, word, "defaults"
        if word.startswith("@"):
            source = find_recipe(word)
            recipe = f"recipe {source.name}"
            trust = options.trust or not is_run_config(source)
            found = resolve(read_toml(source), [], recipe, PROG, trust=trust).method
            name, label, settings = found.name, Path(source.name).stem, f"recipe {source.name}"
        elif word == config.method.name:
            found, settings = config.method, "the run's own"
        elif config.policy.model == "small":
            found = bench_method(word).config
            if f"{word}_small" in known_recipes():
                settings = f"recipe {word}_small.toml"
        else:
            found = method_info(word).config()
        info = method_info(name)
        methods[label] = info.method(found)
        notes[label] = {
            "method": info.name,
            "settings": settings,
            "config_hash": config_hash(found),
        }
    return methods, notes


# -- episodes -------------------------------------------------------------------------------------


def _episodes(
    folder: RunFolder, config: TrainConfig, options: CreditOptions
) -> list[tuple[int, Trajectory]]:
    """Return (update, episode) of what is scored, oldest first, and say how much that is."""
    from creditrl.trainers.collect.base import drop_failed_groups
    from creditrl.trainers.methods import method_info

    if method_info(config.method.name).method.collection == "demonstrations":
        raise ConfigError(
            f"{folder.path} is a run of {config.method.name}, which learned from an expert's "
            "turns: there are no episodes of the policy. Score a run of another method."
        )
    store = folder.store()
    updates = _chosen(options.updates, store.updates(), folder)
    kept: list[tuple[int, list[Trajectory]]] = []
    count = total = failed = 0
    for update in reversed(updates):
        valid, dropped = drop_failed_groups([t for t in store.read(update) if t.turns])
        failed += dropped
        total += len(valid)
        groups: dict[int, list[Trajectory]] = {}
        for trajectory in valid:
            groups.setdefault(trajectory.group, []).append(trajectory)
        part: list[Trajectory] = []
        for members in groups.values():
            if not count or count + len(members) <= options.max_episodes:
                part += members
                count += len(members)
        if part:
            kept.append((update, part))
    if not kept:
        raise ConfigError(
            f"{folder.path} has no stored episodes to score: expected some in "
            f"{folder.trajectories}. Train with --run.trajectories-every 1."
        )
    chosen = [(update, t) for update, part in reversed(kept) for t in part]
    turns = sum(len(t.turns) for _, t in chosen)
    spared = f" of {total:,} (--max-episodes)" if total > count else ""
    print(
        f"{count:,} episodes{spared} of {len(kept)} updates, {turns:,} turns."
        + (f" {failed} groups with failed episodes were left out." if failed else "")
    )
    return chosen


def _chosen(words: str, stored: Sequence[int], folder: RunFolder) -> list[int]:
    """Return the stored updates that the user asked for."""
    if not words:
        return list(stored)
    wanted: set[int] = set()
    for word in words.replace(" ", ",").split(","):
        first, dash, last = word.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ConfigError(f"--updates: {word!r} is no update: expected e.g. 3,10-20.")
        wanted |= set(range(int(first), int(last or first) + 1))
    found = [update for update in stored if update in wanted]
    if not found:
        held = f"{stored[0]} to {stored[-1]}" if stored else "of no update"
        raise ConfigError(f"--updates {words}: {folder.path} holds episodes {held}.")
    return found


# -- scoring --------------------------------------------------------------------------------------


def _score(
    folder: RunFolder,
    config: TrainConfig,
    options: CreditOptions,
    methods: dict[str, Method[Any]],
    notes: dict[str, dict[str, Any]],
    chosen: Sequence[tuple[int, Trajectory]],
    stored: CreditFile,
) -> dict[str, CreditRLError]:
    """Add the credits to what is stored; returns why methods cannot score this run."""
    from creditrl.trainers.methods import method_info
    from creditrl.trainers.run import load_policy
    from creditrl.trainers.side_by_side import FIT_PASSES, credit_side_by_side
    from creditrl.trainers.states import recorded_states
    from creditrl.view.progress import Progress, counted

    policy, found_at = load_policy(config, folder)
    own = method_info(config.method.name).method(config.method)
    passes = options.passes or FIT_PASSES
    refused: dict[str, CreditRLError] = {}
    with (
        Progress() as progress,
        progress.phase("credit", updates=len(methods), counted=counted("methods")) as show,
    ):
        _, credit = credit_side_by_side(
            methods,
            # An update is a batch, whatever its collector wrote down.
            [replace(t, policy_version=update) for update, t in chosen],
            policy,
            config.rollout,
            seed=options.seed,
            states=recorded_states(own, config.rollout),
            passes=passes,
            on_error=refused.__setitem__,
            show=show,
        )
    rows = [row for update, t in chosen for row in turn_rows(update, t)]
    how = {
        "policy": found_at,
        "seed": options.seed,
        "passes": passes,
        "updates": sorted({update for update, _ in chosen}),
        "episodes": len(chosen),
    }
    stored.add(
        rows, credit, {name: {**notes[name], **how} for name in credit}, replace=options.replace
    )
    return refused


# -- report ---------------------------------------------------------------------------------------


def _report(stored: CreditFile, top: int) -> None:
    """Print how far the methods agree, and where they part most."""
    labels = list(stored.credit)
    credit_XN = np.stack([stored.credit[label] for label in labels]).astype(np.float64)
    out = console()
    out.print()
    summary = table("no.", "method", ">turns", ">mean", ">std", ">zero", "numbers from")
    for number, (label, row) in enumerate(zip(labels, credit_XN, strict=True), start=1):
        known = row[~np.isnan(row)]
        summary.add_row(
            str(number),
            label,
            f"{len(known):,}",
            f"{known.mean():.3g}",
            f"{known.std():.3g}",
            f"{100 * np.mean(known == 0):.0f} %",
            stored.notes[label]["settings"],
        )
    out.print(summary)
    if len(labels) < 2:
        return
    overall, within = agreement(credit_XN, stored.episode_N)
    # Numbers stand for the methods of the table before, and columns come in blocks that fit a page.
    for start in range(0, len(labels), _COLUMNS):
        block = range(start, min(start + _COLUMNS, len(labels)))
        shown = table(
            "",
            *(f">{j + 1}" for j in block),
            title=None
            if start
            else "Rank correlation of methods (Spearman): above the diagonal over all turns, below "
            "it the mean within episodes",
        )
        for i in range(len(labels)):
            cells = [(overall if j > i else within)[i, j] if i != j else None for j in block]
            shown.add_row(str(i + 1), *map(_cell, cells))
        out.print(shown)
    turn_K, place_XN = disagreements(credit_XN, top)
    if not len(turn_K):
        return
    rows = [stored.rows[n] for n in turn_K.tolist()]
    parted = table(
        "update\nepisode\nturn\naction",
        *(f">{row.update}\n{row.id}\n{row.turn}\n{_short(row.action)}" for row in rows),
        title="Where they part most: credit (place among all turns in percent, 100 is the highest)",
    )
    for x, label in enumerate(labels):
        places = place_XN[x, turn_K].tolist()
        parted.add_row(
            label,
            *(
                f"{credit:.2g}" + ("" if math.isnan(place) else f" ({100 * place:.0f})")
                for credit, place in zip(credit_XN[x, turn_K].tolist(), places, strict=True)
            ),
        )
    out.print(parted)


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return "-" if math.isnan(value) else f"{value:.2f}"


def _short(action: str, most: int = 24) -> str:
    line = " ".join(action.split())
    return line if len(line) <= most else line[: most - 3] + "..."
