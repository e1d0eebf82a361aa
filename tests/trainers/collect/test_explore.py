"""Exploration before training: so many episodes of each of some tasks."""

from __future__ import annotations

import collections

import gymnasium as gym
import pytest

from creditrl.agents.prompts import get_form
from creditrl.agents.scripted import RandomAgent
from creditrl.trainers.collect.base import CollectContext
from creditrl.trainers.collect.explore import exploration


def make_venv(copies, group_size):
    return gym.make_vec(
        "CreditRL/VisualSokoban-v0", num_envs=copies, group_size=group_size, max_turns=4
    )


def explore(tasks, groups=4, group_size=3, seed=0):
    context = CollectContext(
        environment=make_venv,
        agent=RandomAgent(0),
        form=get_form("plain"),
        seed=seed,
        groups=groups,
        group_size=group_size,
        hash_states="state",
        segments=True,
        retries=0,
    )
    return list(exploration(context, tasks))


@pytest.mark.parametrize("tasks", [3, 4, 10])
def test_every_task_is_played_by_one_whole_group(tasks):
    blocks = explore(tasks)
    assert len(blocks) == -(-tasks // 4)
    found = [t for block in blocks for t in block.trajectories]
    assert collections.Counter(t.group for t in found) == {
        group: 3 for group in {t.group for t in found}
    }
    assert len({t.task.id for t in found}) == tasks == len({t.group for t in found})
    # What fills up the last block is played, and paid for, but not kept.
    assert sum(b.environment_turns for b in blocks) >= sum(len(t.turns) for t in found)
    assert all(turn.state for t in found for turn in t.turns)


def test_a_seed_gives_the_same_episodes_again():
    first, again, other = (
        [[turn.action for turn in t.turns] for b in explore(5, seed=s) for t in b.trajectories]
        for s in (1, 1, 2)
    )
    assert first == again
    assert first != other
