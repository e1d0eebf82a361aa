"""Ids name tasks for ever: published results refer to them."""

from __future__ import annotations

import functools
import gc
import re
from collections.abc import Callable, Iterator
from hashlib import blake2b

import pytest

from creditrl.envs.alfworld.builtin import GeneratedGames
from creditrl.envs.alfworld.generate import HouseholdConfig
from creditrl.envs.sokoban.tasks import sokoban_tasks
from creditrl.envs.sotopia.scenarios import builtin_combinations
from creditrl.envs.tasks import SPLITS
from creditrl.envs.virtualhome.builtin import GeneratedTasks
from creditrl.envs.webshop.builtin import BuiltinGoals


def alfworld(split: str, backward: bool) -> Iterator[object]:
    for config in (
        HouseholdConfig("small", closed=0.5),
        HouseholdConfig(),
        HouseholdConfig("large"),
    ):
        tasks = GeneratedGames(split, config)
        for i in in_order(18, backward):
            yield tasks.task(i), tasks.task(i).data.problem()


def sokoban(split: str, backward: bool) -> Iterator[object]:
    for tier, count in (("easy", 40), ("medium", 20), ("hard", 5), ("boxoban", 3)):
        tasks = sokoban_tasks(tier, split)
        yield from map(tasks.task, in_order(count, backward))


def sotopia(split: str, backward: bool) -> Iterator[object]:
    combinations = builtin_combinations(split)
    yield from (combinations[i] for i in in_order(24, backward))


def virtualhome(split: str, backward: bool) -> Iterator[object]:
    tasks = GeneratedTasks(split)
    for index in (401, 88, 50, 7, 0) if backward else (0, 7, 50, 88, 401):
        task = tasks.task(index)
        home = task.data.load()
        goal = [(id, sorted(states)) for id, states in home.goal.states]
        goal += [tuple(edge) for edge in home.goal.added + home.goal.removed]
        yield task.id, task.goal, goal, dict(home.names), home.world.graph(home.scene)
        yield [tuple(act) for act in home.plan]


def webshop(split: str, backward: bool) -> Iterator[object]:
    tasks = BuiltinGoals(split, kind="mixed")
    yield from map(tasks.task, in_order(100, backward))


def in_order(count: int, backward: bool) -> range:
    return range(count)[::-1] if backward else range(count)


def forget_tasks() -> None:
    """Empty the caches, so that tasks are made anew in the order in which they are asked for."""
    for kept in gc.get_objects():
        if isinstance(kept, functools._lru_cache_wrapper):
            if re.search(r"envs\..*\.(builtin|generate|scenarios|tasks)$", kept.__module__ or ""):
                kept.cache_clear()


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(
    ("made", "pinned"),
    [
        (alfworld, "02589457a01811ce"),
        (sokoban, "42d9ca61c9aae5f9"),
        (sotopia, "6a7f6699948854a3"),
        (virtualhome, "2ec5a21ef1ad3424"),
        (webshop, "3f96071f0491bc71"),
    ],
)
def test_tasks_are_equal_in_every_process_and_order(
    made: Callable[[str, bool], Iterator[object]], pinned: str, backward: bool
) -> None:
    forget_tasks()
    # Another digest means that equal ids name other tasks: raise the environment's format with it.
    told = sorted(repr(task) for split in SPLITS for task in made(split, backward))
    assert blake2b("\n".join(told).encode(), digest_size=8).hexdigest() == pinned
