"""The exploration ratio: states seen over a whole run, by rollouts that were finished."""

from __future__ import annotations

import copy

import pytest
from small_runs import make_context, make_venv

from creditrl.trainers.collect.rollouts import RolloutCollector
from creditrl.trainers.collect.seen import SeenStates
from creditrl.trainers.collect.tree import TreeCollector, TreeConfig
from creditrl.trainers.credit.state_scores import StateScoreConfig


def collector(kind="episodes", count_states=True):
    context = make_context(
        environment=lambda copies, size: make_venv(copies, size, max_turns=5),
        groups=2,
        group_size=8,
        count_states=count_states,
    )
    if kind == "episodes":
        return RolloutCollector.of(context, grouped=True)
    return TreeCollector(context, TreeConfig(), StateScoreConfig(alpha=1.0))


def test_equal_states_count_once_over_the_whole_run():
    seen = SeenStates()
    seen.add([1, 2, 2], rollouts=1)
    seen.add([2, 3], rollouts=1)
    assert seen.metrics() == {"states_seen": 3.0, "rollouts_done": 2.0}
    other = SeenStates()
    other.load_state_dict(seen.state_dict())
    other.add([1, 4], rollouts=0)
    assert other.metrics() == {"states_seen": 4.0, "rollouts_done": 2.0}


def test_episodes_are_rollouts_and_their_observations_are_states():
    of = collector()
    texts: set[str] = set()
    for update in range(3):
        found = of.collect(update)
        texts |= {turn.observation for t in found.trajectories for turn in t.turns}
    assert found.metrics["states_seen"] == len(texts)
    assert found.metrics["rollouts_done"] == 3 * 16


def test_branches_count_as_rollouts_of_a_tree_and_reached_states_count():
    of = collector("tree")
    first = of.collect(0)
    # Two first states, and what lies around them; nothing is finished but what ended at once.
    ways = [(t.group, t.turns[0]) for t in first.trajectories if not t.terminated]
    moves = {(group, turn.action) for group, turn in ways if turn.grounded}
    assert first.metrics["states_seen"] == 2 + len(moves)
    for update in range(1, 12):
        found = of.collect(update)
    assert found.metrics["rollouts_done"] == found.metrics["branches"] > 0
    assert found.metrics["states_seen"] >= found.metrics["states"]


@pytest.mark.parametrize("kind", ["episodes", "tree"])
def test_counts_continue_in_a_resumed_run_and_are_off_by_default(kind):
    straight, resumed = collector(kind), collector(kind)
    for update in range(4):
        if update == 2:
            resumed.load_state_dict(copy.deepcopy(straight.state_dict()))
        whole = straight.collect(update)
        if update >= 2:
            again = resumed.collect(update)
    for name in ("states_seen", "rollouts_done"):
        assert again.metrics[name] == whole.metrics[name]
    assert "states_seen" not in collector(kind, count_states=False).collect(0).metrics
