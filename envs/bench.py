"""Measurements that an environment adds to benches, and those common to all environments.

The common ones are walks, snapshots, and the memory of a further copy.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from creditrl.envs.base import TextEnv
from creditrl.envs.state import restore, snapshot
from creditrl.envs.tasks import TaskSet
from creditrl.envs.vector import TextVectorEnv
from creditrl.measure import Contest, Round, Side, cpu_seconds
from creditrl.types import Task

__all__ = [
    "ENDLESS",
    "Comparison",
    "Conformance",
    "EnvBench",
    "Games",
    "OwnConformance",
    "Script",
    "any_of",
    "contest_sides",
    "draws_round",
    "fresh_contests",
    "fresh_process",
    "make_groups",
    "make_single",
    "make_vector",
    "memory_round",
    "per_second",
    "reset_round",
    "snapshot_contests",
    "steps_round",
    "task_snapshot_contests",
    "vector_walk_round",
    "walk_round",
]


ENDLESS = 1_000_000
"""A turn limit that no measurement reaches."""

Script: TypeAlias = Callable[
    [TextEnv[Any], np.random.Generator], Generator[str | None, dict[str, Any], None]
]
"""Plays one game: yields actions, None for a reset (also first), and is sent ``info``."""


@dataclass(frozen=True, slots=True)
class EnvBench:
    """The measurements of one environment."""

    env: str
    """Short name."""
    contests: Callable[[bool], list[Contest]]
    """Returns the measurements; with True, tiny ones."""
    reference: str
    """Import name of the upstream package."""
    extra: str
    """Extra that installs it."""
    how: str = ""
    """How to get it, if an extra does not install it."""
    note: Callable[[bool], str] | None = None
    """Returns what else the figures depend on, e.g. the games played; takes the same argument."""


@dataclass(frozen=True, slots=True)
class Games:
    """Games and their source."""

    source: str
    """Description of the source."""
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Conformance:
    """The comparison of one environment with upstream's package."""

    env: str
    """Short name, as used on the command line."""
    env_id: str
    modules: tuple[str, ...]
    """Import names of upstream's packages."""
    extra: str
    """Extra that installs them."""
    games: Callable[[int, int, Any], Games]
    """Returns (count, seed, flavour) games."""
    flavours: tuple[str, ...]
    """Wordings to choose from."""
    script: Script
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of both sides."""


@dataclass(slots=True)
class Comparison:
    """Number of steps that were compared, and the first differences."""

    what: str
    episodes: int = 0
    steps: int = 0
    done: int = 0
    """Number of steps with an applicable action."""
    differing: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.what}: {self.episodes:,} episodes, {self.steps:,} steps "
            f"({self.steps - self.done:,} of them with actions that cannot be done); "
            f"episodes that differ: {len(self.differing):,}."
        )


@dataclass(frozen=True, slots=True)
class OwnConformance:
    """A custom comparison of one environment with upstream's package."""

    env: str
    """Short name, as used on the command line."""
    options: Any
    """Options of its command, a dataclass with their defaults."""
    compare: Callable[[Any], Iterator[Comparison]]
    """Runs the comparison with these options."""
    size: str
    """Option for the number of actions, which a longer comparison doubles."""


def any_of(rng: np.random.Generator, actions: Sequence[str]) -> str:
    """Return one of the actions at random."""
    return actions[int(rng.integers(len(actions)))]


def contest_sides(
    ours: Callable[[], Round], theirs: Callable[[], Round] | None = None, *, installed: bool
) -> dict[Side, Callable[[], Round]]:
    """Return the sides of a contest: upstream's only if it is ``installed`` and measured."""
    if theirs is not None and installed:
        return {"ours": ours, "theirs": theirs}
    return {"ours": ours}


def make_single(env_id: str, **options: Any) -> gym.Env[Any, Any]:
    """Return an environment as measured, without Gymnasium's checker."""
    return gym.make(env_id, disable_env_checker=True, **options)


def make_vector(env_id: str, **options: Any) -> TextVectorEnv:
    """Return a vector environment whose finished copies wait."""
    venv = gym.make_vec(env_id, autoreset_mode="Disabled", **options)
    assert isinstance(venv, TextVectorEnv)
    return venv


def make_groups(
    env_id: str, tasks: Sequence[Task], copies: int, group: int
) -> tuple[TextVectorEnv, list[Task]]:
    """Return a vector environment without end, and a task for each of its groups."""
    venv = make_vector(env_id, num_envs=copies, group_size=group, max_turns=ENDLESS)
    return venv, [tasks[g % len(tasks)] for g in range(venv.num_groups)]


def per_second(times_us: Round) -> Round:
    """Return a round of steps per second, given one of microseconds per step."""

    def measure() -> list[float]:
        found = times_us()
        return [1e6 * len(found) / sum(found)]

    return measure


def fresh_process(code: str, *arguments: str) -> Any:
    """Return what a program, in a process of its own, prints as its last line of JSON."""
    command = [sys.executable, "-P", "-c", code, *arguments]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(told.stdout.splitlines()[-1])


def steps_round(
    env: gym.Env[Any, Any], steps: int, choose: Callable[[Mapping[str, Any]], str]
) -> Round:
    """Return a round of episodes one after the other: CPU time of every step, in us."""
    env.reset(seed=0)

    def measure() -> list[float]:
        times = []
        _, info = env.reset()
        for _ in range(steps):
            action = choose(info)
            start = time.process_time()
            *_, terminated, truncated, info = env.step(action)
            times.append(1e6 * (time.process_time() - start))
            if terminated or truncated:
                _, info = env.reset()
        return times

    return measure


def draws_round(env: gym.Env[Any, Any], times: int) -> Round:
    """Return the microseconds of each reset, which draws a task."""
    env.reset(seed=0)
    return lambda: [1e6 * cpu_seconds(env.reset) for _ in range(times)]


def walk_round(env: gym.Env[Any, Any], tasks: Callable[[], Sequence[Task]], steps: int) -> Round:
    """Return a round of random walks below the turn limit: CPU time of steps, in us."""
    rng = np.random.default_rng(0)

    def measure() -> list[float]:
        times = []
        for task in tasks():
            _, info = env.reset(options={"task": task})
            for _ in range(steps):
                action = any_of(rng, info["admissible_actions"])
                start = time.process_time()
                *_, terminated, _, info = env.step(action)
                times.append(1e6 * (time.process_time() - start))
                if terminated:
                    break
        return times

    return measure


def vector_walk_round(venv: TextVectorEnv, tasks: Callable[[], list[Task]], steps: int) -> Round:
    """Return a round of a walk of all copies below the limit: steps per second of CPU time."""
    rng = np.random.default_rng(0)

    def measure() -> list[float]:
        _, info = venv.reset(seed=0, options={"task": tasks()})
        begun = venv.snapshot()
        done, spent = 0, 0.0
        for _ in range(steps):
            actions = [any_of(rng, some) for some in info["admissible_actions"]]
            done += int(venv.active.sum())
            start = time.process_time()
            *_, info = venv.step(actions)
            spent += time.process_time() - start
            over = np.flatnonzero(~venv.active)
            if len(over):
                _, info = venv.restore(over, [begun[i] for i in over])
        return [done / spent]

    return measure


class _Unseen(TaskSet):
    """The tasks of a set in a mixed order; each comes once before any repeats."""

    def __init__(self, tasks: TaskSet) -> None:
        self._tasks = tasks
        self._order = np.random.default_rng(0).permutation(len(tasks))
        self._drawn = 0

    def __len__(self) -> int:
        return len(self._tasks)

    def task(self, index: int) -> Task:
        return self._tasks.task(index)

    def find(self, task_id: str) -> Task:
        return self._tasks.find(task_id)

    def draw(self, rng: np.random.Generator) -> int:
        self._drawn += 1
        return int(self._order[(self._drawn - 1) % len(self)])


Choose: TypeAlias = Callable[[np.random.Generator, Mapping[str, Any], int], str]
"""Returns a copy's next action, given the columns of ``info`` and its place in them."""


def _admissible(rng: np.random.Generator, info: Mapping[str, Any], copy: int) -> str:
    return any_of(rng, info["admissible_actions"][copy])


class _FreshWalk:
    """A random walk in which every episode has a new task."""

    def __init__(self, venv: TextVectorEnv, steps: int, choose: Choose) -> None:
        venv.tasks = _Unseen(venv.tasks)
        self.venv, self.steps, self.choose = venv, steps, choose
        self.rng = np.random.default_rng(0)
        self.found = [0.0, 0.0, 0.0]
        """Figures of the last round: steps per second, ms per reset, resets' share in per cent."""

    def play(self) -> list[float]:
        """Play a round; return the steps per second."""
        venv = self.venv
        n = venv.num_envs
        start = time.process_time()
        _, info = venv.reset(seed=0)
        resets, spent = n, time.process_time() - start
        stepping = 0.0
        for left in range(self.steps - 1, -1, -1):
            actions = [self.choose(self.rng, info, i) for i in range(n)]
            start = time.process_time()
            *_, info = venv.step(actions)
            stepping += time.process_time() - start
            over = ~venv.active
            if left and over.any():
                resets += int(over.sum())
                start = time.process_time()
                _, info = venv.reset(options={"reset_mask": over})
                spent += time.process_time() - start
        whole = spent + stepping
        self.found = [n * self.steps / whole, 1e3 * spent / resets, 100 * spent / whole]
        return self.found[:1]


def fresh_contests(
    env_id: str,
    copies: int,
    steps: int,
    target: float | None,
    choose: Choose = _admissible,
    **options: Any,
) -> list[Contest]:
    """Return the measurement of a trainer that plays every task once; no upstream has it.

    A round has ``steps`` steps of all copies, best a multiple of an episode's; ``target`` is in
    steps per second.
    """
    walks: list[_FreshWalk] = []

    def play() -> Round:
        venv = make_vector(env_id, num_envs=copies, **options)
        walks.append(_FreshWalk(venv, steps, choose))
        return walks[-1].play

    def told(which: int) -> Callable[[], Round]:
        # The walk comes first in every round.
        return lambda: lambda: [walks[-1].found[which]]

    return [
        Contest(
            f"fresh_tasks_{copies}",
            f"random play of {copies} copies, a task never played before in every episode",
            "steps/s",
            "higher",
            {"ours": play},
            target=target,
        ),
        Contest("fresh_reset", "of that, a reset", "ms", "lower", {"ours": told(1)}),
        Contest("fresh_share", "of that, all resets", "%", "lower", {"ours": told(2)}),
    ]


def snapshot_contests(
    copies: int,
    snapshots: int,
    venv: Callable[[], TextVectorEnv],
    env: Callable[[], gym.Env[Any, Any]],
) -> list[Contest]:
    """Return the measurements of saving and restoring; no upstream has them.

    All copies of ``venv``, in the middle of episodes, are saved and restored ``snapshots`` times in
    a round, and so is ``env``, with all of Gymnasium's wrappers.
    """
    return [
        Contest(
            f"snapshot_restore_{copies}",
            f"snapshot and restore of {copies} copies, per copy",
            "us",
            "lower",
            {"ours": lambda: _vector_round(venv(), copies, snapshots)},
            target=20.0,
        ),
        Contest(
            "snapshot_restore_single",
            "creditrl.snapshot and restore through gym.make's wrappers",
            "us",
            "lower",
            {"ours": lambda: _single_round(env(), 4 * snapshots)},
        ),
    ]


def task_snapshot_contests(
    env_id: str, tasks: Sequence[Task], copies: int, group: int, snapshots: int
) -> list[Contest]:
    """Return :func:`snapshot_contests` at the start of these tasks."""

    def begun() -> TextVectorEnv:
        venv, groups = make_groups(env_id, tasks, copies, group)
        venv.reset(seed=0, options={"task": groups})
        return venv

    def begun_single() -> gym.Env[Any, Any]:
        env = make_single(env_id, max_turns=ENDLESS)
        env.reset(options={"task": tasks[0]})
        return env

    return snapshot_contests(copies, snapshots, begun, begun_single)


def memory_round(env_id: str, task: Task, copies: int) -> Round:
    """Compare Python's memory for one copy and for more, each after a few steps."""

    def held(count: int) -> int:
        gc.collect()
        tracemalloc.start()
        venv = make_vector(env_id, num_envs=count, group_size=count, max_turns=ENDLESS)
        _, info = venv.reset(seed=0, options={"task": [task]})
        rng = np.random.default_rng(0)
        for _ in range(10):
            *_, info = venv.step([any_of(rng, some) for some in info["admissible_actions"]])
        gc.collect()
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        venv.close()
        return size

    def measure() -> list[float]:
        held(1)  # now the task is in memory for all copies
        return [max(0.0, held(1 + copies) - held(1)) / copies / 1e3]

    return measure


def reset_round(env: gym.Env[Any, Any], tasks: Sequence[Task], times: int) -> Round:
    """Return the milliseconds of each reset of tasks that are in memory."""
    for task in tasks:
        env.reset(options={"task": task})

    def measure() -> list[float]:
        return [
            1e3 * cpu_seconds(partial(env.reset, options={"task": task}))
            for _ in range(times)
            for task in tasks
        ]

    return measure


def _vector_round(venv: TextVectorEnv, copies: int, snapshots: int) -> Round:
    def work() -> None:
        for _ in range(snapshots):
            venv.restore(None, venv.snapshot())

    return lambda: [1e6 * cpu_seconds(work) / (snapshots * copies)]


def _single_round(env: gym.Env[Any, Any], times: int) -> Round:
    def work() -> None:
        for _ in range(times):
            restore(env, snapshot(env))

    return lambda: [1e6 * cpu_seconds(work) / times]
