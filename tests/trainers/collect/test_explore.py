"""Exploration before training: so many episodes of each of some tasks."""

from __future__ import annotations

import collections

import pytest
from small_runs import make_context, make_venv

from creditrl.trainers.collect.explore import exploration


def explore(tasks, seed=0):
    def environment(copies, size):
        return make_venv(copies, size, max_optimal_moves=9, max_turns=4)

    recorded = {"hash_states": "state", "segments": True}
    context = make_context(environment=environment, seed=seed, group_size=3, **recorded)
    return list(exploration(context, tasks))


@pytest.mark.parametrize("tasks", [3, 4, 10])
def test_every_task_is_played_by_one_whole_group(tasks):
    blocks = explore(tasks)
    assert len(blocks) == -(-tasks // 4)
    found = [t for block in blocks for t in block.trajectories]
    members = collections.Counter(t.group for t in found)
    assert len({t.task.id for t in found}) == tasks == len(members) and {*members.values()} == {3}
    # Episodes that fill up the last block are played and counted, but not kept.
    assert sum(b.environment_turns for b in blocks) >= sum(len(t.turns) for t in found)
    assert all(turn.state for t in found for turn in t.turns)


def test_a_seed_gives_the_same_episodes_again():
    first, again, other = (
        [[turn.action for turn in t.turns] for b in explore(5, seed=s) for t in b.trajectories]
        for s in (1, 1, 2)
    )
    assert first == again
    assert first != other
