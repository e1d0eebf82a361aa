"""Builtin task sets: the same tasks everywhere, cheap to list, in splits that share nothing."""

from __future__ import annotations

import pickle
from hashlib import blake2b

import pytest

from creditrl.envs.tasks import SPLITS
from creditrl.envs.virtualhome import builtin
from creditrl.envs.virtualhome.builtin import NUM_TASKS, GeneratedTask, GeneratedTasks
from creditrl.envs.virtualhome.generate import HouseholdConfig
from creditrl.envs.virtualhome.kinds import KINDS
from creditrl.errors import ConfigError, UnknownNameError


def test_sets_are_as_large_as_promised() -> None:
    for split in SPLITS:
        tasks = GeneratedTasks(split)
        assert len(tasks) == NUM_TASKS[split] >= {"train": 2000}.get(split, 140)
        for index in (0, 117, len(tasks) - 1):
            task = tasks.task(index)
            home = task.data.load()
            assert task.id == f"builtin/{split}/{index}" and tasks.find(task.id) is task
            assert (task.type, task.split, task.index) == (home.kind, split, index)
            assert task.goal == f"{home.title}({home.description})"
            assert task.difficulty == len(home.plan)


def test_no_task_is_in_two_splits() -> None:
    keys: dict[bytes, str] = {}
    for split in SPLITS:
        for task in GeneratedTasks(split, num_tasks=48):
            home = task.data.load()
            goal = repr((sorted(home.goal.objects()), home.goal.added, home.kind)).encode()
            key = blake2b(home.world.key(home.scene) + goal).digest()
            assert keys.setdefault(key, split) == split
    assert len(keys) == 3 * 48  # nor twice in one


def test_a_task_is_made_when_it_is_asked_for_and_then_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    make = builtin.household

    def counting(config: HouseholdConfig, split: str, index: int) -> object:
        asked.append((config.seed, split, index))
        return make(config, split, index)

    monkeypatch.setattr(builtin, "household", counting)
    tasks = GeneratedTasks("train", HouseholdConfig(seed=11))
    assert len(tasks.filter(types=["make_coffee"])) == 100
    assert asked == []
    tasks.task(22)
    tasks.task(22).data.load()
    assert asked == [(11, "train", 22)]


def test_tasks_are_filtered_by_type_and_difficulty() -> None:
    tasks = GeneratedTasks("valid_seen")
    some = tasks.filter(types=["drink", "watch_tv"], difficulty=(3, 5))
    assert 0 < len(some) <= 20
    for task in some:
        assert task.type in ("drink", "watch_tv") and 3 <= task.difficulty <= 5
    with pytest.raises(ConfigError, match="'watch_tvv' is unknown. Did you mean 'watch_tv'"):
        tasks.filter(types=["watch_tvv"])
    few = GeneratedTasks("train", num_tasks=3)
    with pytest.raises(ConfigError, match="No task is left of 3"):
        few.filter(types=[list(KINDS)[5]])


def test_ids_name_the_seed_and_what_makes_no_sense_is_refused() -> None:
    tasks = GeneratedTasks("train", HouseholdConfig(3), num_tasks=500)
    assert tasks.task(4).id == "builtin-seed3/train/4"
    for wrong in ("builtin/train/4", "builtin-seed3/train/500", "builtin-seed3/train/x"):
        with pytest.raises(UnknownNameError, match="expected builtin-seed3/train/0 to .*499"):
            tasks.find(wrong)
    with pytest.raises(IndexError, match="500 tasks"):
        tasks.task(500)
    with pytest.raises(ConfigError, match="is unknown"):
        GeneratedTasks("test")
    with pytest.raises(ConfigError, match="expected at least one task"):
        GeneratedTasks("train", num_tasks=0)


def test_a_task_travels_as_a_key() -> None:
    task = GeneratedTasks("train").task(30)
    copy = pickle.loads(pickle.dumps(task))
    assert copy == task and copy.data.load() is task.data.load()
    assert len(pickle.dumps(task)) < 1_000
    source = GeneratedTask(HouseholdConfig(), "train", 30)
    assert source == task.data and source.key == "builtin/train/30 3"
