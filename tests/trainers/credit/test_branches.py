"""Credit in trees of episodes: values of turns, baselines of their alternatives, weights."""

from __future__ import annotations

import numpy as np
import pytest

from creditrl.errors import CreditInputError
from creditrl.trainers.credit import Forest, GroupConfig, group_advantage_of_turns, turn_table
from creditrl.trainers.credit.branches import tree_advantage

# a has three turns and succeeds; c branches off before a's second turn and fails; b has two turns
# and fails.
TREE = {
    "reward": [0, 0, 1, 0, 0, 0, 0, 0],
    "episode": ["a", "a", "a", "b", "b", "c", "c", "c"],
    "group": [0] * 8,
    "scores": {"parent_N": [-1] * 5 + [0] * 3, "left_N": [0] * 5 + [1] * 3},
}


def test_a_branch_by_hand():
    # T: a's turns 1/2 (mean of 1 and 0), 1, 1; c's 1/2, 0, 0; b's 0, 0. Baselines of the first
    # turns: 0 for a, 1/2 for b. At the branch: (0 + 0) / 2 for a, from c and the first turn's
    # baseline, and (1 + 0) / 2 for c.
    advantage_N, weight_N = tree_advantage(turn_table(**TREE))
    np.testing.assert_allclose(advantage_N, [0.5, 1, 1, -0.5, -0.5, 0.5, -0.5, -0.5])
    # The shared turn has weight 1 over its two episodes, and so have the two continuations.
    np.testing.assert_allclose(weight_N, [0.5, 0.5, 0.5, 1, 1, 0.5, 0.5, 0.5])
    # Without shrinking, a baseline is the mean of the alternatives.
    bare_N, _ = tree_advantage(turn_table(**TREE), shrink=0.0)
    np.testing.assert_allclose(bare_N, [0.5, 1, 1, -0.5, -0.5, 0.5, -1, -1])


def test_members_in_equal_states_are_alternatives():
    # The second turns of a and b start in one state. Alternatives of a: c and b, 0 each, and the 0
    # before; of c: a's 1 and b's 0; of b: the mean of a and c, 1/2, and the 1/2 before.
    state = [7, 8, 9, 7, 8, 7, 8, 10]
    advantage_N, _ = tree_advantage(turn_table(**TREE, state=state))
    np.testing.assert_allclose(advantage_N, [0.5, 1, 1, -0.5, -0.5, 0.5, -1 / 3, -1 / 3], atol=1e-6)
    # Equal states at different turns are no alternatives: fewer turns are left there.
    later = [7, 8, 9, 7, 9, 7, 8, 10]
    np.testing.assert_allclose(
        tree_advantage(turn_table(**TREE, state=later))[0], tree_advantage(turn_table(**TREE))[0]
    )


def test_a_branch_of_a_branch_shares_with_both():
    # d branches off c before its third turn and succeeds, so c's second turn has T = 1/2.
    tree = {
        "reward": [*TREE["reward"], 0, 0, 1],
        "episode": [*TREE["episode"], "d", "d", "d"],
        "group": [0] * 11,
        "scores": {
            "parent_N": [-1] * 5 + [0] * 3 + [2] * 3,
            "left_N": [0] * 5 + [1] * 3 + [2] * 3,
        },
    }
    advantage_N, weight_N = tree_advantage(turn_table(**tree), shrink=0.0)
    # First turns: (1 + 1/2) / 2 against 0. Second: 1 against 1/2. Third of c and d: 0 against 1.
    np.testing.assert_allclose(
        advantage_N, [0.75, 0.5, 0.5, -0.75, -0.75, 0.75, -0.5, -1, 0.75, -0.5, 1]
    )
    np.testing.assert_allclose(weight_N, [0.5] * 3 + [1] * 2 + [0.25] * 6)
    assert Forest.of(turn_table(**tree)).root_B.tolist() == [0, 1, 0, 0]


def test_branching_off_a_branch_at_its_start_equals_branching_off_its_parent():
    columns = {"reward": [0, 1, 0, 0, 0, 1], "episode": [0, 0, 1, 1, 2, 2], "group": [0] * 6}
    left = [0, 0, 1, 1, 1, 1]
    found = [
        tree_advantage(turn_table(**columns, scores={"parent_N": parent, "left_N": left}))
        for parent in ([-1, -1, 0, 0, 0, 0], [-1, -1, 0, 0, 1, 1])
    ]
    np.testing.assert_array_equal(found[0], found[1])


def test_without_branches_credit_equals_rloo():
    rng = np.random.default_rng(0)
    episode = np.repeat(np.arange(9), rng.integers(1, 5, size=9))
    turns = turn_table(rng.normal(size=len(episode)), episode, group=episode // 3)
    advantage_N, weight_N = tree_advantage(turns)
    rloo_N = group_advantage_of_turns(turns, GroupConfig(kind="rloo"))
    np.testing.assert_allclose(advantage_N, rloo_N, atol=1e-6)
    assert (weight_N == 1).all()
    # An episode alone has nothing to be compared with.
    assert tree_advantage(turn_table([3.0], [0]))[0] == 0
    # Nor is there a branch where episodes left others before the first turn.
    parent_N = np.where(episode % 3, episode - 1, -1)
    early = turns.with_scores(parent_N=parent_N, left_N=np.zeros(len(episode), int))
    np.testing.assert_allclose(tree_advantage(early)[0], rloo_N, atol=1e-6)


@pytest.mark.parametrize(
    ("parent", "left", "lengths"),
    [(1, 0, (2, 3)), (0, 2, (2, 3)), (0, 2, (3, 2)), (0, -1, (2, 3)), (7, 0, (2, 3))],
)
def test_an_invalid_branch_is_refused(parent, left, lengths):
    episode = np.repeat([0, 1], lengths)
    scores = {"parent_N": np.where(episode, parent, -1), "left_N": np.where(episode, left, 0)}
    turns = turn_table([0] * 5, episode, scores=scores)
    with pytest.raises(CreditInputError, match=f"Episode 1 branches off episode {parent} at turn"):
        tree_advantage(turns)
