"""States seen over a whole run and their scores, by rollouts that were finished."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from small_runs import (
    make_agent,
    make_context,
    make_method,
    make_policy,
    make_trainer,
    make_trajectory,
    make_venv,
)

from creditrl.envs.state import hash_state
from creditrl.trainers.collect.dynamic import DynamicCollector
from creditrl.trainers.collect.oversample import OversampleCollector
from creditrl.trainers.collect.rollouts import RolloutCollector, rollout_metrics
from creditrl.trainers.collect.seen import SeenStates, seen_state
from creditrl.trainers.collect.tree import TreeCollector, TreeConfig
from creditrl.trainers.config import RolloutConfig
from creditrl.trainers.credit.state_scores import StateScoreConfig
from creditrl.trainers.states import recorded_states
from creditrl.types import Task, Turn


def collector(kind="episodes", count_states=True):
    context = make_context(
        environment=lambda copies, size: make_venv(copies, size, max_turns=5),
        groups=2,
        group_size=8,
        count_states=count_states,
    )
    if kind == "episodes":
        return RolloutCollector.of(context, grouped=True)
    if kind == "dynamic":
        return DynamicCollector(RolloutCollector.of(context, grouped=True), lambda _: False, 2)
    if kind == "oversample":
        return OversampleCollector(context, grouped=True)
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
    ended = found.metrics["branches"] + found.metrics["branches_cut"]
    assert found.metrics["rollouts_done"] == ended > 0
    assert found.metrics["states_seen"] >= found.metrics["states"]


def episode(states, *, success=False, number=0, difficulty=3.0):
    turns = [Turn("", "", "", 0.0, state=state) for state in states]
    task = Task("a", "easy", "train", 0, difficulty=difficulty)
    return make_trajectory(turns, number, group=0, task=task, success=success)


def test_states_are_scored_by_finished_episodes_of_any_collector():
    seen = SeenStates()
    assert "high_score_states" not in seen.metrics()
    # At the second turn, S = 2^(-50 rate): half of the episodes through 1 succeed, all through 2,
    # and the one through 3 failed, as little as one knows: of three states one has a high score.
    seen.add_episodes([episode([1, 2, 2], success=True), episode([1, 3])], tasks=1)
    assert seen.metrics() == {
        **{"states_seen": 3.0, "rollouts_done": 2.0, "tasks_begun": 1.0, "rollouts_solved": 1.0},
        "high_score_states": pytest.approx(1 / 3),
    }
    assert (seen.score(3, 1), seen.score(9, 1)) == (1.0, 1.0)
    assert seen.score(1, 1) == pytest.approx(2**-25, rel=1e-4)
    # Nine more failures, and 3 is given up.
    seen.add_episodes([episode([3])] * 9, tasks=2)
    assert seen.metrics()["high_score_states"] == 0.0 and seen.score(3, 1) == 0.0
    other = SeenStates()
    other.load_state_dict(seen.state_dict())
    assert other.metrics() == seen.metrics()


def test_the_text_stands_for_a_state_without_a_hash():
    assert seen_state(Turn("a \ud800", "", "", 0.0, state=5)) == 5
    assert seen_state(Turn("a \ud800", "", "", 0.0)) == hash_state(b"a ?")


def test_mean_scores_are_those_before_the_update_by_difficulty():
    seen = SeenStates()
    seen.add_episodes([episode([1, 2], success=True)], tasks=1)
    # S is 1 at the first turn, and where nobody was; at the second, 2^-50 where all succeeded.
    played = [episode([1, 2, 2]), episode([5, 1, 2, 6], number=1, difficulty=7.0)]
    metrics = rollout_metrics(played, played, 0, seen)
    # 1 and 2 count once, where they came first: 1 and 0 there, 1 and 1 in the harder task.
    assert metrics["state_score"] == pytest.approx(3 / 4)
    assert metrics["state_score/0-4"] == pytest.approx(1 / 2)
    assert metrics["state_score/5-9"] == 1.0
    assert seen.rollouts == 3 and seen.tasks == 2


@pytest.mark.parametrize("kind", ["episodes", "dynamic", "oversample"])
def test_counts_are_of_the_whole_run(kind):
    of = collector(kind)
    for update in range(3):
        found = of.collect(update)
    # Twice two groups of eight a try: no group teaches, and the last try keeps all.
    tries = found.metrics.get("tries", 1.0)
    assert tries == (2 if kind == "dynamic" else 1)
    assert found.metrics["rollouts_done"] == 3 * 16 * tries
    assert found.metrics["tasks_begun"] == 3 * 2 * tries
    assert 0 < found.metrics["rollouts_solved"] < 3 * 16 * tries
    assert 0 < found.metrics["high_score_states"] < 1 and 0 < found.metrics["state_score"] <= 1


def test_an_environment_without_state_keys_is_counted_by_its_texts(monkeypatch):
    of = RolloutCollector.of(
        make_context(hash_states="state", states_needed=False, count_states=True, groups=1),
        grouped=True,
    )

    def none(*_):
        raise NotImplementedError("it has none")

    monkeypatch.setattr(of.venv, "state_keys", none)
    found = of.collect(0)
    texts = {turn.observation for t in found.trajectories for turn in t.turns}
    assert found.metrics["states_seen"] == len(texts)


@pytest.mark.parametrize("kind", ["episodes", "tree"])
def test_counts_continue_in_a_resumed_run_and_are_off_by_default(kind):
    straight, resumed = collector(kind), collector(kind)
    for update in range(4):
        if update == 2:
            resumed.load_state_dict(copy.deepcopy(straight.state_dict()))
        whole = straight.collect(update)
        if update >= 2:
            again = resumed.collect(update)
    for name in ("states_seen", "rollouts_done", "high_score_states", "state_score"):
        assert again.metrics[name] == whole.metrics[name]
    assert "states_seen" not in collector(kind, count_states=False).collect(0).metrics


@pytest.mark.parametrize(("name", "found"), [("grpo", None), ("gigpo", "state"), ("hgpo", "text")])
def test_counting_states_changes_nothing_that_a_run_learns(name, found, monkeypatch):
    metrics, compared = {}, {}
    for counted in (False, True):
        method = make_method(name)
        source = recorded_states(method, RolloutConfig(), counted)
        assert source == ("state" if counted else found)
        policy = make_policy()
        context = make_context(
            method, agent=make_agent(policy), hash_states=source, count_states=counted
        )
        settings = {"groups": 4, "group_size": 4, "max_new_tokens": 1}
        trainer = make_trainer(policy, method, method.collector(context), settings)
        credit = method.credit

        def told(turns, tokens, credit=credit, counted=counted):
            compared[counted] = turns.state_N
            return credit(turns, tokens)

        monkeypatch.setattr(method, "credit", told)
        metrics[counted], _ = trainer.update()
    for key in ("success", "loss", "grad_norm"):
        assert metrics[True][key] == metrics[False][key], key
    if found is not None:
        # HGPO compares texts, whichever states the run recorded.
        np.testing.assert_array_equal(compared[True], compared[False])
