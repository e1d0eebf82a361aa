"""The measurement behind ``creditrl bench credit``: credit of every method beside the truth.

For each environment: a small policy is cloned, it plays groups of episodes, the true advantage of
some turns is measured by continuations (:mod:`creditrl.bench.credit_truth`), every method scores
these episodes, and each score is compared with the truth. Learned models are fitted to episodes of
other tasks by the same policy. Whatever is finished is on disk, and the same call goes on.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from creditrl._version import __version__
from creditrl.agents.intervals import Estimate
from creditrl.agents.prompts import get_form
from creditrl.bench.credit_compare import Candidate, Scored, clear_truths, parts_of, scores_of
from creditrl.bench.credit_truth import (
    Place,
    Start,
    Truth,
    choose_turns,
    collect_places,
    continuations,
    distances,
    progress_of,
    starts_of,
    truth_of,
)
from creditrl.config import config_hash, find_recipe, known_recipes, read_toml
from creditrl.envs.register import environment_id
from creditrl.envs.vector import TextVectorEnv
from creditrl.errors import ConfigError, CreditRLError, DataError, UnknownNameError, did_you_mean
from creditrl.files import write_atomic
from creditrl.runs import RunFolder
from creditrl.store import TrajectoryStore
from creditrl.types import BoolArray, FloatArray, Trajectory
from creditrl.view.progress import Progress, counted

if TYPE_CHECKING:
    from creditrl.agents.transformers import TransformersAgent
    from creditrl.trainers.config import TrainConfig
    from creditrl.trainers.methods.base import Method
    from creditrl.trainers.models.policy import Policy

__all__ = [
    "SETTINGS",
    "CreditBench",
    "EnvResult",
    "Setting",
    "bench_method",
    "method_names",
    "run_credit_bench",
    "tiny",
]

PROG = "creditrl bench credit"


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment that is measured on."""

    env: str
    """Short name."""
    recipe: str
    """Its environment, small policy, cloning and prompts are taken, its method and budget not."""
    flags: tuple[str, ...] = ()
    """What is changed of the recipe."""


SETTINGS: dict[str, Setting] = {
    setting.env.lower(): setting
    for setting in (
        Setting("VisualSokoban", "@quickstart"),
        # Where most episodes fail, most advantages are 0, so cloning goes on here.
        Setting("ALFWorld", "@alfworld_small", ("--clone.updates", "200")),
    )
}


@dataclass(frozen=True, slots=True)
class CreditBench:
    """Sizes of the measurement."""

    turns: int = 400
    """Turns whose truth is measured, in each environment."""
    rollouts: int = 64
    """Continuations from before each turn, and as many from after it."""
    seed: int = 0
    """Fixes policy, tasks, episodes, turns and continuations."""
    methods: tuple[str, ...] = ()
    """Methods to measure; none: all that are registered."""
    groups: int = 64
    """Tasks of the episodes that are measured."""
    group_size: int = 8
    """Episodes per task."""
    fit_groups: int = 64
    """Other tasks, whose episodes learned models are fitted to."""
    copies: int = 1024
    """Copies of the environment that play continuations side by side."""
    draws: int = 1000
    """Draws of the bootstrap."""
    tiny: bool = False
    """Clone next to nothing: shows that everything runs."""

    def __post_init__(self) -> None:
        for name, least in (
            ("turns", 2),
            ("rollouts", 2),
            ("seed", 0),
            ("groups", 2),
            ("group_size", 2),
            ("fit_groups", 1),
            ("copies", 1),
            ("draws", 1),
        ):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} is {getattr(self, name)}: expected at least {least}.")
        if self.rollouts % 2:
            raise ConfigError(
                f"rollouts is {self.rollouts}: expected an even number, which has two halves."
            )
        if self.copies < self.rollouts:
            raise ConfigError(
                f"copies is {self.copies}: expected at least rollouts={self.rollouts}."
            )


@dataclass(frozen=True, slots=True)
class EnvResult:
    """What was found in one environment."""

    env: str
    recipe: str
    policy_success: Estimate
    """Of the cloned policy, on held-out tasks at the collection's temperature."""
    episodes: int
    episode_success: float
    """Share of the measured episodes that succeeded."""
    turns: Mapping[str, int]
    """Turns that were measured, by part."""
    clear: int
    """Turns whose truth is clear."""
    spread: float
    """Standard deviation of the measured advantages."""
    error: float
    """Root mean square of their standard errors."""
    reliability: Mapping[str, Estimate]
    """Split-half reliability of the truth by part, Spearman-Brown corrected."""
    scores: tuple[Scored, ...]
    unscored: Mapping[str, str]
    """Methods that cannot score these episodes, and why."""
    seconds: Mapping[str, float]
    """Wall-clock seconds by phase; of its longest stretch where one was cut."""


def tiny(bench: CreditBench) -> CreditBench:
    """Return a measurement of next to nothing, which shows that everything runs."""
    return replace(
        bench,
        turns=min(bench.turns, 12),
        rollouts=min(bench.rollouts, 4),
        groups=6,
        group_size=4,
        fit_groups=6,
        copies=32,
        draws=20,
        tiny=True,
    )


def run_credit_bench(
    bench: CreditBench, settings: Sequence[Setting], folder: Path, progress: Progress
) -> list[EnvResult]:
    """Measure in each environment; goes on in a folder where the same call was cut.

    Raises:
        ConfigError: the folder is of another measurement, or a method is unknown.
        DataError: the episodes cannot be played again as they were.
    """
    names = method_names(bench.methods)
    folder.mkdir(parents=True, exist_ok=True)
    _claim(folder / "settings.json", {"version": __version__, **asdict(replace(bench, methods=()))})
    return [
        _EnvBench(bench, setting, folder / setting.env, progress).run(names) for setting in settings
    ]


def method_names(wanted: Sequence[str]) -> list[str]:
    """Return the methods that are wanted, all of them for none.

    Raises:
        UnknownNameError: there is no such method.
    """
    from creditrl.trainers.methods import list_methods

    known = [info.name for info in list_methods()]
    for name in wanted:
        if name not in known:
            raise UnknownNameError(
                f"No method named {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}."
            )
    return list(wanted) or known


def _claim(path: Path, content: Mapping[str, Any]) -> None:
    """Write what a folder is of, or raise where it is of something else."""
    plain = json.loads(json.dumps(content))
    if not path.exists():
        write_atomic(path, json.dumps(plain, indent=2) + "\n")
        return
    found = json.loads(path.read_text("utf-8"))
    for key in {**found, **plain}:
        if found.get(key) != plain.get(key):
            raise ConfigError(
                f"{path.parent} holds a measurement with {key}={found.get(key)!r}, and this one "
                f"has {plain.get(key)!r}: choose another --out, or the same settings."
            )


class _EnvBench:
    """The measurement in one environment; :meth:`run` is its phases in order."""

    def __init__(
        self, bench: CreditBench, setting: Setting, folder: Path, progress: Progress
    ) -> None:
        from creditrl.trainers.config import resolve

        self.bench = bench
        self.setting = setting
        self.folder = folder
        self.progress = progress
        flags = [*setting.flags, *(_TINY if bench.tiny else ()), "--run.seed", str(bench.seed)]
        self.config: TrainConfig = resolve(
            read_toml(find_recipe(setting.recipe)), flags, f"recipe {setting.recipe}", PROG
        )
        self.form = get_form(self.config.rollout.form)
        self.seconds: dict[str, float] = {}
        self._environments: dict[tuple[int, int, bool], TextVectorEnv] = {}

    def run(self, names: Sequence[str]) -> EnvResult:
        """Do every phase that is not done yet."""
        self.folder.mkdir(exist_ok=True)
        recipe = {"recipe": self.setting.recipe, "flags": list(self.setting.flags)}
        _claim(self.folder / "recipe.json", recipe)
        times = self.folder / "seconds.json"
        if times.exists():
            self.seconds = json.loads(times.read_text("utf-8"))
        try:
            policy, success = self.timed("clone", self.policy)
            episodes, places, others = self.timed("collect", lambda: self.collect(policy))
            rng = np.random.default_rng([self.bench.seed, 1])
            chosen = choose_turns(episodes, self.bench.turns, rng)
            truth = self.timed(
                "truth", lambda: self.truth(self.agent(policy), chosen, episodes, places)
            )
            closer_N = self.progress_of(chosen, places)
            credits, unscored = self.credits(names, policy, chosen, episodes, others)
            write_atomic(times, json.dumps(self.seconds) + "\n")
            return self.result(success, chosen, episodes, truth, closer_N, credits, unscored)
        finally:
            for venv in self._environments.values():
                venv.close()

    # -- phases ---------------------------------------------------------------------------------

    def policy(self) -> tuple[Policy, Estimate]:
        """Return the cloned policy and its success on held-out tasks."""
        from creditrl.trainers.config import BudgetConfig, CompareConfig, method_section
        from creditrl.trainers.models.policy import Policy
        from creditrl.trainers.run import run_training

        folder = self.folder / "clone"
        if not RunFolder(folder).read_evaluations("after"):
            shutil.rmtree(folder, ignore_errors=True)  # of a cloning that was cut
            config = self.config
            clone = replace(
                config,
                method=method_section("sft")(),
                optim=config.clone.optim,
                budget=BudgetConfig(updates=config.clone.updates),
                compare=CompareConfig(),
                eval=replace(config.eval, temperature=config.rollout.temperature, greedy=False),
                run=replace(config.run, checkpoint_every=0, trajectories_every=0),
            )
            run_training(clone, RunFolder.create(folder, clone, PROG), self.progress)
        found = RunFolder(folder).read_evaluations("after")
        return Policy.load(folder / "policy" / "last"), found["sampled"].overall.success

    def collect(
        self, policy: Policy
    ) -> tuple[list[Trajectory], list[list[Place]], list[Trajectory]]:
        """Return the episodes to measure with their places, and those to fit models to.

        Places are not written down: a call that goes on plays the same episodes again, and
        compares.
        """
        bench = self.bench
        agent = self.agent(policy)
        both = []
        tasks = np.random.default_rng([bench.seed, 0]).permutation(
            len(self.environment(bench.groups * bench.group_size, bench.group_size).tasks)
        )
        if len(tasks) < bench.groups + bench.fit_groups:
            raise ConfigError(
                f"{self.setting.env} has {len(tasks)} training tasks: expected at least groups + "
                f"fit_groups = {bench.groups + bench.fit_groups}."
            )
        with self.progress.phase(f"{self.setting.env}: episodes"):
            for part, (start, groups) in enumerate(
                ((0, bench.groups), (bench.groups, bench.fit_groups))
            ):
                agent.reseed(_draw(bench.seed, 2, part))
                both.append(
                    collect_places(
                        self.environment(groups * bench.group_size, bench.group_size),
                        agent,
                        self.form,
                        seed=_draw(bench.seed, 3, part) % 2**31,
                        tasks=tasks[start : start + groups].tolist(),
                        label=("measured", "fitted")[part],
                    )
                )
        (episodes, places), (others, _) = both
        # Groups are told apart over both.
        others = [replace(t, group=t.group + bench.groups) for t in others]
        self.keep_episodes(episodes, others)
        return episodes, places, others

    def keep_episodes(self, episodes: list[Trajectory], others: list[Trajectory]) -> None:
        """Write the episodes down, or raise where others were written before."""
        path = self.folder / "episodes.json"
        digest = hashlib.sha256()
        for trajectory in (*episodes, *others):
            row = [trajectory.id, trajectory.success, *(turn.reply for turn in trajectory.turns)]
            digest.update(json.dumps(row).encode())
        content = {"sha256": digest.hexdigest()}
        if not path.exists():
            store = self.folder / "trajectories"
            shutil.rmtree(store, ignore_errors=True)
            TrajectoryStore(store).append(0, episodes)
            TrajectoryStore(store).append(1, others)
            write_atomic(path, json.dumps(content) + "\n")
        elif json.loads(path.read_text("utf-8")) != content:
            raise DataError(
                f"{self.folder} was begun with other episodes than are played now: expected the "
                "same machine, packages and number of threads. Begin anew with another --out."
            )

    def truth(
        self,
        agent: TransformersAgent,
        chosen: Sequence[tuple[int, int]],
        episodes: Sequence[Trajectory],
        places: Sequence[Sequence[Place]],
    ) -> Truth:
        """Play the continuations, block by block; finished blocks are read back."""
        bench = self.bench
        starts = starts_of(chosen, episodes, places)
        size = bench.copies // bench.rollouts
        blocks = [starts[at : at + size] for at in range(0, len(starts), size)]
        path = self.folder / "truth.jsonl"
        found = _read_blocks(path, blocks, chosen, bench.rollouts)
        venv = self.environment(size * bench.rollouts, 1)
        with self.progress.phase(
            f"{self.setting.env}: truth",
            updates=len(starts) * bench.rollouts,
            counted=counted("continuations"),
        ) as show:
            for number in range(len(found), len(blocks)):
                agent.reseed(_draw(bench.seed, 4, number))
                block = blocks[number]
                found.append(continuations(venv, agent, self.form, block, bench.rollouts))
                with path.open("a", encoding="utf-8") as file:
                    for start, outcome_R in zip(block, found[-1], strict=True):
                        file.write(_line(start, chosen, outcome_R))
                show(sum(map(len, found)) * bench.rollouts)
        last = [turn + 1 == len(episodes[episode].turns) for episode, turn in chosen]
        won = [episodes[episode].success for episode, _ in chosen]
        return truth_of(starts, np.concatenate(found), np.array(last), np.array(won))

    def progress_of(
        self, chosen: Sequence[tuple[int, int]], places: Sequence[Sequence[Place]]
    ) -> FloatArray | None:
        """Return the exact progress of each turn, None where the environment has no solver."""
        if "progress" not in self.config.env.options.__dataclass_fields__:
            return None
        venv = self.environment(64, 1, progress=True)
        before_N, after_N = (
            distances(venv, [places[episode][turn + k] for episode, turn in chosen]) for k in (0, 1)
        )
        return progress_of(before_N, after_N)

    def credits(
        self,
        names: Sequence[str],
        policy: Policy,
        chosen: Sequence[tuple[int, int]],
        episodes: Sequence[Trajectory],
        others: Sequence[Trajectory],
    ) -> tuple[list[Candidate], dict[str, str]]:
        """Return each method's credits of the chosen turns, and why others have none."""
        path = self.folder / "credits.jsonl"
        methods = {name: bench_method(name) for name in names}
        hashes = {name: config_hash(method.config) for name, method in methods.items()}
        # What was scored under other numbers is scored again.
        rows = {
            row["method"]: row
            for row in _read_lines(path)
            if row["method"] in hashes and row.get("config") == hashes[row["method"]]
        }
        begin = np.cumsum([0, *(len(t.turns) for t in episodes)])
        at_N = np.array([begin[episode] + turn for episode, turn in chosen])
        todo = [name for name in names if name not in rows]
        unscored = {}
        with self.progress.phase(
            f"{self.setting.env}: credit", updates=len(todo), counted=counted("methods")
        ) as show:
            for done, name in enumerate(todo, 1):
                start = time.process_time()
                try:
                    credit_N = self.credit(methods[name], policy, episodes, others)[at_N]
                except CreditRLError as error:
                    # Not written down: it may be mended when this is called again.
                    unscored[name] = " ".join(str(error).split())
                    continue
                seconds = round(time.process_time() - start, 2)
                rows[name] = {
                    "method": name,
                    "config": hashes[name],
                    "seconds": seconds,
                    "credit": credit_N.tolist(),
                }
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[name]) + "\n")
                show(done, method=name)
        found = [
            Candidate(name, "method", np.array(rows[name]["credit"]), rows[name]["seconds"])
            for name in names
            if name in rows
        ]
        return found, unscored

    def credit(
        self,
        method: Method[Any],
        policy: Policy,
        episodes: Sequence[Trajectory],
        others: Sequence[Trajectory],
    ) -> FloatArray:
        """Return a method's credit of every turn of the episodes."""
        from creditrl.trainers.side_by_side import credit_side_by_side

        _, credits = credit_side_by_side(
            {method.name: method},
            episodes,
            policy,
            # What is true of the outcome is compared with credit for the outcome.
            replace(self.config.rollout, reward="success", reward_scale=1.0),
            fit_on=others,
            seed=self.bench.seed,
        )
        return credits[method.name]

    def result(
        self,
        success: Estimate,
        chosen: Sequence[tuple[int, int]],
        episodes: Sequence[Trajectory],
        truth: Truth,
        closer_N: FloatArray | None,
        credits: Sequence[Candidate],
        unscored: Mapping[str, str],
    ) -> EnvResult:
        """Compare every score with the truth."""
        won_N = np.array([episodes[episode].success for episode, _ in chosen])
        cluster_N = np.array([episodes[episode].group for episode, _ in chosen])
        left_N = np.array([len(episodes[e].turns) - 1 - turn for e, turn in chosen], dtype=float)
        rng = np.random.default_rng([self.bench.seed, 5])
        reward_N = np.array([episodes[e].turns[turn].reward for e, turn in chosen])
        # Scores that know nothing of what was done, and such as a method may not know.
        candidates = [
            *credits,
            Candidate("constant", "baseline", np.ones(len(chosen))),
            Candidate("random", "baseline", rng.uniform(-1, 1, len(chosen))),
            Candidate("position", "baseline", -left_N),
            Candidate("environment reward", "reference", reward_N),
        ]
        if closer_N is not None:
            known_N = np.where(np.isnan(closer_N), 0.0, closer_N)
            candidates.append(Candidate("exact progress", "reference", known_N))
        scores, reliable = scores_of(
            candidates, truth, closer_N, won_N, cluster_N, self.bench.draws, self.bench.seed
        )
        return EnvResult(
            env=self.setting.env,
            recipe=" ".join([self.setting.recipe, *self.setting.flags]),
            policy_success=success,
            episodes=len(episodes),
            episode_success=float(np.mean([t.success for t in episodes])),
            turns={part: int(rows_N.sum()) for part, rows_N in parts_of(won_N).items()},
            clear=int(clear_truths(truth).sum()),
            spread=float(truth.advantage_N.std()),
            error=float(np.sqrt(np.mean(truth.error_N**2))),
            reliability=reliable,
            scores=scores,
            unscored=unscored,
            seconds=self.seconds,
        )

    # -- parts ----------------------------------------------------------------------------------

    def agent(self, policy: Policy) -> TransformersAgent:
        """Return the policy as it collects."""
        from creditrl.agents.transformers import TransformersAgent

        rollout = self.config.rollout
        return TransformersAgent(
            policy.model,
            policy.tokenizer,
            temperature=rollout.temperature,
            max_new_tokens=rollout.max_new_tokens,
            actions=rollout.actions,
        )

    def environment(self, copies: int, group_size: int, progress: bool = False) -> TextVectorEnv:
        """Return a vector environment of the training split, made once for each shape."""
        key = (copies, group_size, progress)
        if key not in self._environments:
            given = self.config.env.options
            options = {name: getattr(given, name) for name in given.__dataclass_fields__}
            if progress:
                options["progress"] = True
            made: Any = gym.make_vec(
                environment_id(self.config.env.id),
                num_envs=copies,
                group_size=group_size,
                **options,
            )
            self._environments[key] = made.unwrapped
        return self._environments[key]

    def timed(self, phase: str, work: Any) -> Any:
        """Do the work of a phase; its time counts unless it was read back from disk."""
        begin = time.perf_counter()
        result = work()
        spent = time.perf_counter() - begin
        self.seconds[phase] = max(self.seconds.get(phase, 0.0), round(spent, 1))
        return result


_TINY = (
    *("--clone.episodes", "20", "--clone.updates", "10", "--clone.noise", "0"),
    *("--policy.tokenizer-episodes", "20", "--eval.levels", "8"),
)


def bench_method(name: str) -> Method[Any]:
    """Return a method as it is measured on a small policy: with the numbers of its small recipe.

    A method without one has its own defaults. ``creditrl credit`` takes these numbers too.

    Raises:
        UnknownNameError: there is no such method.
    """
    from creditrl.trainers.config import resolve
    from creditrl.trainers.methods import method_info

    info = method_info(name)
    recipe = f"{name}_small"
    if recipe not in known_recipes():
        return info.method(info.config())
    config = resolve(read_toml(find_recipe(recipe)), [], f"recipe {recipe}", PROG)
    return info.method(config.method)


def _draw(*key: int) -> int:
    return int(np.random.default_rng(key).integers(2**62))


def _line(start: Start, chosen: Sequence[tuple[int, int]], outcome_R: BoolArray) -> str:
    episode, turn = chosen[start.turn]
    return (
        json.dumps(
            {
                "episode": episode,
                "turn": turn,
                "from": "after" if start.after else "before",
                "success": "".join("01"[bool(won)] for won in outcome_R),
            }
        )
        + "\n"
    )


def _read_blocks(
    path: Path,
    blocks: Sequence[Sequence[Start]],
    chosen: Sequence[tuple[int, int]],
    rollouts: int,
) -> list[BoolArray]:
    """Return the blocks that are whole on disk, and cut the file behind them."""
    rows = _read_lines(path)
    found: list[BoolArray] = []
    lines: list[str] = []
    for block in blocks:
        mine = rows[len(lines) : len(lines) + len(block)]
        if len(mine) < len(block):
            break
        outcome_KR = np.array([[c == "1" for c in row["success"]] for row in mine])
        text = [_line(s, chosen, outcome_R) for s, outcome_R in zip(block, outcome_KR, strict=True)]
        if outcome_KR.shape[1] != rollouts or [json.loads(line) for line in text] != mine:
            raise DataError(
                f"{path} holds continuations from other turns than are measured now: expected "
                "those of the same settings. Begin anew with another --out."
            )
        found.append(outcome_KR)
        lines += text
    if path.exists():
        write_atomic(path, "".join(lines))
    return found


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines; a last line that was cut is cut off."""
    if not path.exists():
        return []
    text = path.read_text("utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        write_atomic(path, whole)
    return [json.loads(line) for line in whole.splitlines()]
