"""3SPO's tree search: several rollouts from a state, follow the best, backtrack to the rest."""

from __future__ import annotations

import dataclasses

import gymnasium as gym
import numpy as np
import pytest
from small_runs import make_context, make_venv
from toy_env import ToyVectorEnv

from creditrl.agents.scripted import RandomAgent
from creditrl.errors import ConfigError
from creditrl.trainers.collect.tree import TreeCollector, TreeConfig, difficulty_class
from creditrl.trainers.credit.state_scores import StateScoreConfig
from creditrl.types import Reply, Task

SMALL = StateScoreConfig(alpha=1.0)


def rooms(copies, size):
    return make_venv(copies, size, max_turns=5)


def make(groups=2, scores=SMALL, form="plain", agent=None, environment=rooms, **tree):
    context = make_context(
        environment=environment,
        agent=agent or RandomAgent(0),
        form=form,
        groups=groups,
        group_size=8,
    )
    return TreeCollector(context, TreeConfig(**tree), scores)


def collect(collector, updates, start=0):
    return [collector.collect(update) for update in range(start, start + updates)]


def test_the_first_states_have_eight_rollouts_of_one_turn_each():
    collector = make()
    found = collector.collect(0)
    assert found.environment_turns == 16 == len(found.trajectories)
    assert sorted(t.group for t in found.trajectories) == [0] * 8 + [1] * 8
    for group in (0, 1):
        members = [t for t in found.trajectories if t.group == group]
        assert {len(t.turns) for t in members} == {1}
        assert len({t.turns[0].observation for t in members}) == 1
        assert len({t.turns[0].state for t in members}) == 1
        # Nothing was known: what moved gets 1/2, what did not 0, a success 1/2 more.
        for trajectory in members:
            moved = trajectory.turns[0].grounded
            expected = 0.5 * moved + 0.5 * (trajectory.terminated and trajectory.success)
            assert trajectory.turns[0].reward == pytest.approx(expected)


def test_a_tree_without_revisits_expands_every_state_once():
    def expansions(**tree):
        collector = make(groups=1, **tree)
        found = {}
        for update in range(60):
            collector.collect(update)
            # A task's first state has no path, so each task starts its own list.
            now = collector._trees[0]
            found[now.begun] = (now.expansions, len(now.expanded))
        assert len(found) > 2 and collector.restores > 0
        return list(found.values())[:-1]

    assert all(times == states for times, states in expansions(revisit=False, branches=4))
    assert any(times > states for times, states in expansions(branches=4))


def test_transitions_of_a_tree_are_valued_by_its_own_branches():
    rates = StateScoreConfig(alpha=1.0, novelty=False, differences="rates")

    def first_update(**tree):
        collector = make(scores=rates, rollouts=4, back="first", **tree)
        return collector, collector.collect(0)

    collector, whole = first_update(update="tree")
    # Every task was left, at 8 times 5 transitions or for want of a frontier, and the next begun.
    assert [tree.begun for tree in collector._trees] == [2, 2]
    assert collector.table.trajectories > 2 and not any(tree.grown for tree in collector._trees)
    # A group has the transitions of one state, valued by the branches from there.
    states = {(t.task.id, t.group): t.turns[0].state for t in whole.trajectories}
    assert len(states) == len({t.group for t in whole.trajectories}) > 2
    for t in whole.trajectories:
        assert t.turns[0].state == states[t.task.id, t.group]
    going_on = [t.turns[0].reward for t in whole.trajectories if not t.terminated]
    assert any(going_on)
    # With single steps there are no branches, and all that continue are equal.
    _, step = first_update()
    assert not any(t.turns[0].reward for t in step.trajectories if not t.terminated)


def test_the_rate_of_a_state_is_the_mean_outcome_of_its_branches():
    rates = StateScoreConfig(alpha=1.0, novelty=False, differences="rates")

    def corridors(copies, size):
        return ToyVectorEnv(copies, group_size=size, max_turns=4)

    def after(updates, **tree):
        collector = make(scores=rates, environment=corridors, update="tree", **tree)
        *_, last = collect(collector, updates)
        return collector.table, last.metrics["branches_solved"]

    table, solved = after(2)
    assert table.solved == solved > 0
    # Half of a corridor is half a score, but no success.
    table, solved = after(2, success="score")
    assert table.trajectories > table.solved > solved > 0
    assert any(share % 1 for share in table.state_dict()["successes"])


@pytest.mark.parametrize(("back", "expected"), [("last", -1), ("first", 2)])
def test_the_next_branch_begins_at_the_configured_state(back, expected):
    collector = make(groups=1, back=back)
    collector.collect(0)
    tree = collector._trees[0]
    # Of two states after one move the better was passed over last.
    tree.frontier = [
        dataclasses.replace(tree.root, path=("push up",) * depth) for depth in (1, 3, 1, 2)
    ]
    assert collector._back(0) == expected


def test_restored_states_equal_the_ones_left():
    """Every prompt is what its path of actions leads to, played in a fresh environment."""
    asked = []

    class Watching(RandomAgent):
        def act(self, prompts):
            asked.append([prompt.observation for prompt in prompts])
            return super().act(prompts)

    collector = make(groups=1, agent=Watching(0))
    fresh = gym.make(
        "CreditRL/VisualSokoban-v0", min_optimal_moves=1, max_optimal_moves=2, max_turns=5
    )
    after_backtracking = 0
    for update in range(30):
        before = collector.restores
        collector.collect(update)
        tree = collector._trees[0]
        if tree.node is None or tree.node.ended:
            continue
        text, _ = fresh.reset(options={"task": tree.task})
        for action in tree.node.path:
            text, *_ = fresh.step(action)
        asked.clear()
        node = tree.node
        rollouts = collector._settle(0)
        if collector._trees[0].node is not node:
            continue
        collector._expand([rollouts], "check")
        assert asked[-1] == [text] * rollouts
        after_backtracking += collector.restores > before
    assert after_backtracking > 0


def test_a_given_up_state_ends_its_branch_except_with_uniform_rollouts():
    # One failure is enough, whatever the rate: branches end in known states.
    strict = StateScoreConfig(alpha=1.0, xi=1, zeta=0.99)
    collector = make(groups=1, scores=strict)
    collect(collector, 30)
    assert collector.skipped > 0 or collector.table.trajectories > 0
    scores = [collector.table.score(s, 1, strict) for s in collector.table.state_dict()["states"]]
    assert min(scores) == 0.0
    other = make(groups=1, scores=strict, uniform=2)
    assert {found.environment_turns for found in collect(other, 30)} == {2}
    assert other.skipped == 0 and other.table.trajectories != collector.table.trajectories


def test_a_cut_branch_enters_no_count():
    # Eq. 1 counts completed trajectories: one that is given up has not failed.
    collector = make(groups=1)
    collect(collector, 3)
    tree = collector._trees[0]
    assert not tree.node.ended and tree.node.depth > 0
    key = collector._key(tree, tree.node.state)
    for _ in range(10):
        collector.table.record([key], 0.0)
    before, branches = collector.table.state_dict(), tree.branches
    collector._settle(0)
    assert collector.cut == 1 and tree.branches == branches
    assert collector.table.state_dict() == before


def test_ends_are_states_that_a_trajectory_does_not_pass():
    collector = make(groups=1)
    for update in range(60):
        collector.collect(update)
        (tree,) = collector._trees
        ended = tree.node
        if ended is not None and ended.ended and ended.state not in ended.passed:
            break
    keys = [collector._key(tree, state) for state in (*ended.passed, ended.state)]
    before = [collector.table.visits(key) for key in keys]
    collector._end(tree, ended)
    after = [collector.table.visits(key) for key in keys]
    assert len(keys) > 1 and after == [*(visits + 1 for visits in before[:-1]), before[-1]]


def test_a_task_ends_with_its_frontier_or_its_branches(monkeypatch):
    left = []
    begin = TreeCollector._next_task

    def next_task(self, place):
        tree = self._trees[place]
        if tree.root is not None:
            left.append((tree.branches, len(tree.frontier), tree.expansions))
        return begin(self, place)

    monkeypatch.setattr(TreeCollector, "_next_task", next_task)
    collector = make(groups=2, branches=3)
    collect(collector, 60)
    # Up to 5 turns a branch.
    assert len(left) > 4
    assert all(done == 3 or not waiting or spent == 15 for done, waiting, spent in left)
    # A failed branch with eight rollouts a state is not the end of a task.
    assert sum(done == 3 for done, _, _ in left) > len(left) / 2


def test_a_search_that_never_backtracks_fails_unless_backtracking_is_off(monkeypatch):
    monkeypatch.setattr("creditrl.trainers.collect.tree._RESTORED_BY", 16)  # 256 take long

    class Alike(RandomAgent):
        """Does the same whatever it sees: every rollout out of a state leads to the same one."""

        def act(self, prompts):
            return [Reply("push up") for _ in prompts]

    with pytest.raises(ConfigError, match=r"1\d branches and never backtracked.*temperature"):
        collect(make(groups=4, agent=Alike(0)), 200)
    for agent in (Alike(0), RandomAgent(0)):
        collector = make(groups=4, agent=agent, backtrack=False)
        while collector.table.trajectories < 20:
            collector.collect(0)
        assert collector.restores == 0 and not any(tree.frontier for tree in collector._trees)


def test_an_update_ends_when_no_state_deserves_two_rollouts(monkeypatch):
    collector = make(groups=2)
    collector.collect(0)
    monkeypatch.setattr("creditrl.trainers.collect.tree.rollouts_at", lambda score, most: 1)
    found = collector.collect(1)
    # 5 turns of both trees, one at a time.
    assert (found.trajectories, found.environment_turns) == ([], 10)


@pytest.mark.parametrize(
    ("options", "updates", "at"),
    [({"form": "tags"}, 12, 7), ({"update": "tree", "back": "first"}, 2, 1)],
    ids=["steps", "whole trees"],
)
def test_a_search_resumes_to_the_same_next_updates(options, updates, at):
    whole, cut, again = (make(**options) for _ in range(3))
    collect(whole, updates), collect(cut, at)
    again.load_state_dict(cut.state_dict())
    collect(again, updates - at, start=at)
    expected, found = whole.collect(updates), again.collect(updates)
    assert [t.turns for t in expected.trajectories] == [t.turns for t in found.trajectories]
    assert expected.metrics == found.metrics
    assert whole.state_dict() == again.state_dict()


def test_a_growing_conversation_branches():
    """In full context every branch has its own prefix of token ids."""

    class Speaking(RandomAgent):
        """Prompt ids are the prefix and one token for what is new; replies have one token."""

        def act(self, prompts):
            return [
                dataclasses.replace(
                    reply,
                    prompt_ids=(*prompt.prefix_ids, prompt.turn),
                    token_ids=(100 + len(reply.text),),
                    logprobs=(-1.0,),
                )
                for prompt, reply in zip(prompts, super().act(prompts), strict=True)
            ]

    collector = make(groups=1, form="dialogue", agent=Speaking(0))
    lengths = set()
    for found in collect(collector, 25):
        for trajectory in found.trajectories:
            (turn,) = trajectory.turns
            depth = len(turn.prompt_ids) // 2
            assert turn.prompt_ids[0::2] == tuple(range(depth + 1))
            lengths.add(depth)
    assert len(lengths) > 2


def test_visit_counts_can_be_kept_per_task():
    shared, apart = make(scope="shared"), make()
    collect(shared, 3), collect(apart, 3)
    assert len(apart.table) > 0
    assert set(shared.table.state_dict()["states"]).isdisjoint(apart.table.state_dict()["states"])


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"revisit": False, "backtrack": False}, "revisit=false and backtrack=false"),
        ({"back": "best"}, "Known: last, first"),
        ({"update": "branch"}, "Known: step, tree"),
        *(({name: size}, "TreeConfig") for name, size in (("rollouts", 1), ("branches", 0))),
        *(({"uniform": size}, "TreeConfig") for size in (1, 9)),
    ],
)
def test_settings_that_allow_no_tree_are_refused(bad, said):
    with pytest.raises(ConfigError, match=said):
        TreeConfig(**bad)


def test_the_search_follows_the_best_backtracks_and_reports_metrics():
    collector = make(groups=1)
    rows, branches = [], {}
    for update in range(40):
        rows.append(collector.collect(update).metrics)
        tree = collector._trees[0]
        branches[tree.begun] = tree.branches
    # A task ends after 32 branches at most.
    assert max(branches.values()) <= 32 and len(branches) > 1
    first, last = rows[0], rows[-1]
    # Nothing is known at first: every state has score 1. Levels of one or two moves are one class.
    assert first["state_score"] == first["state_score/0-4"] == 1.0
    assert [key for key in last if key.startswith("state_score/")] == ["state_score/0-4"]
    assert 0 < min(row["state_score"] for row in rows) < 1.0
    assert last["branches_solved"] == collector.table.solved > 0
    assert last["branches"] == collector.table.trajectories > max(10, last["branches_solved"])
    assert last["tasks_begun"] == sum(t.begun for t in collector._trees) - collector.skipped
    assert 0 < last["turns"] <= 5
    assert last["states"] == len(collector.table) and last["restores"] == collector.restores > 10
    assert 1 <= last["rollouts"] <= 8 and 0 <= last["success"] <= 1
    assert np.isfinite(list(last.values())).all()


@pytest.mark.parametrize(
    ("difficulty", "expected"), [(0.0, "0-4"), (4.0, "0-4"), (7.0, "5-9"), (float("nan"), "pick")]
)
def test_difficulty_classes(difficulty, expected):
    assert difficulty_class(Task("a", "pick", "train", 0, difficulty=difficulty)) == expected
