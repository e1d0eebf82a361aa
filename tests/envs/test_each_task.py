"""Every task is played exactly once with any number of copies, and spare copies wait."""

from __future__ import annotations

from collections import Counter
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from toy_env import TOY, ToyEnv, ToyVectorEnv

import creditrl
from creditrl.envs.register import ENVIRONMENTS
from creditrl.errors import ConfigError
from creditrl.wrappers import (
    VectorGrounding,
    VectorHistory,
    VectorRecordTrajectory,
    VectorStateHash,
)

TASKS = len(ToyEnv().tasks)


def play(venv: Any, tasks: Any = None, seed: int = 0) -> Counter[tuple[str, int]]:
    """Play blocks to the end by going right; return (task, turns) of each episode."""
    ended: Counter[tuple[str, int]] = Counter()
    for playing, observations, info in creditrl.each_task(venv, tasks, seed=seed):
        assert venv.active[playing].all() and venv.active.sum() == len(playing)
        begun = [info["task_id"][i] for i in playing]
        while venv.active.any():
            observations, *_, info = venv.step(["right"] * venv.num_envs)
        assert [info["task_id"][i] for i in playing] == begun
        ended.update((info["task_id"][i], int(info["turn"][i])) for i in playing)
        waiting = np.setdiff1d(np.arange(venv.num_envs), playing)
        assert not any(info["task_id"][i] for i in waiting)
    return ended


def alone(tasks: Any, seed: int = 0) -> Counter[tuple[str, int]]:
    """Return the same for one copy at a time."""
    ended: Counter[tuple[str, int]] = Counter()
    env = ToyEnv()
    for k, task in enumerate(tasks):
        _, info = env.reset(seed=seed + k, options={"task": task})
        over = False
        while not over:
            *_, terminated, truncated, info = env.step("right")
            over = terminated or truncated
        ended[info["task_id"], info["turn"]] += 1
    return ended


@pytest.mark.parametrize(
    ("num_envs", "workers"), [(1, 0), (5, 0), (5, 1), (TASKS, 0), (TASKS + 3, 0), (TASKS + 3, 1)]
)
def test_each_task_is_played_once_with_the_result_of_a_single_copy(
    num_envs: int, workers: int
) -> None:
    venv = ToyVectorEnv(num_envs, workers=workers)
    expected = alone(range(TASKS), seed=3)
    assert play(venv, seed=3) == expected and len({task for task, _ in expected}) == TASKS
    # Again, starting from a last block in which some copies waited.
    assert play(venv, seed=3) == expected
    venv.close()


def test_selected_tasks_are_played_as_often_as_they_are_listed() -> None:
    venv = ToyVectorEnv(4)
    ids = [venv.tasks[i].id for i in (3, 1)]
    assert play(venv, [*ids, venv.tasks[0], 2, 3]) == alone([3, 1, 0, 2, 3])
    assert play(venv, []) == Counter()


def test_members_of_a_group_play_its_task_together() -> None:
    venv = ToyVectorEnv(6, group_size=2)
    assert play(venv) == Counter({key: 2 * n for key, n in alone(range(TASKS)).items()})


def test_a_copy_that_waits_has_no_task_and_does_nothing() -> None:
    venv = ToyVectorEnv(3)
    observations, info = venv.reset(seed=[1, 2, None], options={"task": [0, 1, None]})
    assert venv.active.tolist() == [True, True, False]
    for _ in range(2):
        # An agent that answers for all copies finds valid input here too.
        assert observations[2] and info["admissible_actions"][2] and info["task_id"][2] == ""
        observations, reward, terminated, truncated, info = venv.step(["look", "look", "right"])
        assert (reward[2], terminated[2], truncated[2], info["turn"][2]) == (0.0, False, False, 0)
    saved = venv.snapshot()
    venv.reset(seed=5)
    assert venv.active.all()
    venv.restore(None, saved)
    assert venv.active.tolist() == [True, True, False]
    venv.restore([2], [saved[0]])
    assert venv.active[2]
    # A mask restarts some copies; the others keep waiting.
    venv.reset(options={"task": [0, None, None]})
    mask = np.array([False, True, False])
    _, info = venv.reset(options={"reset_mask": mask})
    assert venv.active.tolist() == [True, True, False] and info["task_id"][2] == ""


def test_each_task_needs_our_vector_environment_without_autoreset() -> None:
    with pytest.raises(ConfigError, match="a task for one at least"):
        ToyVectorEnv(2).reset(options={"task": [None, None]})
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        with pytest.raises(ConfigError, match="by themselves"):
            next(creditrl.each_task(ToyVectorEnv(TASKS, autoreset_mode=mode)))
    theirs = gym.make_vec(TOY, num_envs=2, vectorization_mode="sync")
    with pytest.raises(ConfigError, match="without vectorization_mode"):
        next(creditrl.each_task(theirs))


def test_each_task_works_through_wrappers() -> None:
    venv = VectorRecordTrajectory(
        VectorHistory(VectorStateHash(VectorGrounding(ToyVectorEnv(5))), form="tags")
    )
    assert play(venv) == alone(range(TASKS))
    recorded = Counter(episode.task.id for episode in venv.trajectories)
    assert recorded == Counter(task.id for task in venv.tasks)


@pytest.mark.parametrize("entry", ENVIRONMENTS, ids=lambda entry: entry.id)
def test_each_task_works_in_every_environment(entry: Any) -> None:
    venv: Any = gym.make_vec(
        entry.id, num_envs=3, split="valid_unseen", max_turns=3, autoreset_mode="Disabled"
    )
    seen = Counter(
        task
        for _, _, info in creditrl.each_task(venv, range(7))
        for task in info["task_id"].tolist()
        if task
    )
    assert seen == Counter(venv.tasks[i].id for i in range(7))
    venv.close()
