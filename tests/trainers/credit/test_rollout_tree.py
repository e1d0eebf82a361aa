"""Rollout trees: returns of a group's episodes, averaged at equal states and actions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from creditrl.trainers.credit import RolloutTreeConfig, rollout_tree, turn_table

# Two episodes take action 0 in state 7 and part in state 8; the third takes action 1 in state 7.
TURNS = turn_table(
    reward=[0, 1, 0, 0, 1], episode=[0, 0, 1, 1, 2], state=[7, 8, 7, 8, 7], success=[1, 1, 0, 0, 1]
)
ACTION_N = [0, 0, 0, 1, 1]


def test_advantages_of_a_rollout_tree_by_hand():
    # gamma 1/2: returns 1/2, 1, 0, 0, 1. At 7: Q = 1/4 and 1, V = 1/2; at 8: Q = 1 and 0, V = 1/2.
    found = rollout_tree(TURNS, ACTION_N, RolloutTreeConfig(gamma=0.5, prior=0.0))
    np.testing.assert_allclose(found, [-0.25, 0.5, -0.25, -0.5, 0.5])


def test_the_prior_counts_as_visits_with_the_groups_mean_outcome():
    # Mean outcome 2/3, twice; at 7 discounted by (1/2 + 1/2 + 1) / 3: V'(7) = (3/2 + 8/9) / 5,
    # at 8, where episodes end, V'(8) = (1 + 4/3) / 4 = 7/12.
    found = rollout_tree(TURNS, ACTION_N, RolloutTreeConfig(gamma=0.5))
    expected = [1 / 4 - 43 / 90, 5 / 12, 1 / 4 - 43 / 90, -7 / 12, 1 - 43 / 90]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_an_episode_counts_by_its_first_visit():
    # It does the same in state 7 twice: Q = 1/4, not 3/8; V(7) = (1/4 + 0) / 2.
    turns = turn_table(reward=[0, 0, 1, 0], episode=[0, 0, 0, 1], state=[7, 7, 8, 7])
    found = rollout_tree(turns, [0, 0, 0, 1], RolloutTreeConfig(gamma=0.5, prior=0.0))
    np.testing.assert_allclose(found, [0.125, 0.125, 0.0, -0.125])


def test_in_an_all_successful_group_early_turns_are_not_penalised():
    state = [1, 2, 3, 1, 4, 5]
    turns = turn_table(reward=[0, 0, 1] * 2, episode=[0] * 3 + [1] * 3, state=state)
    found = rollout_tree(turns, [0] * 6, RolloutTreeConfig(gamma=0.9))
    np.testing.assert_allclose(found, 0, atol=1e-6)


def random_tree(seed):
    rng = np.random.default_rng(seed)
    episode_N = np.repeat(np.arange(12), rng.integers(1, 6, size=12))
    rows = len(episode_N)
    turns = turn_table(
        reward=rng.normal(size=rows),
        episode=episode_N,
        group=episode_N // 4,
        state=rng.integers(1, 5, size=rows),
    )
    return turns, rng.integers(3, size=rows), rng


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), prior=st.sampled_from([0.0, 2.0]))
def test_potential_based_shaping_shifts_all_actions_of_a_state_equally(seed, prior):
    """Rewards of gamma phi(s') - phi(s) move all returns of a state alike."""
    turns, action_N, rng = random_tree(seed)
    cfg = RolloutTreeConfig(gamma=0.9, prior=prior)
    phi_N = rng.normal(size=5)[turns.state_N]
    last_N = np.append(turns.episode_N[1:] != turns.episode_N[:-1], True)
    after_N = np.where(last_N, 0.0, np.roll(phi_N, -1))
    shaped = replace(turns, reward_N=turns.reward_N + 0.9 * after_N - phi_N)
    moved_N = rollout_tree(shaped, action_N, cfg) - rollout_tree(turns, action_N, cfg)
    if not prior:
        np.testing.assert_allclose(moved_N, 0, atol=1e-5)
    for group, state in set(zip(turns.group_N.tolist(), turns.state_N.tolist(), strict=True)):
        here = (turns.group_N == group) & (turns.state_N == state)
        np.testing.assert_allclose(moved_N[here], moved_N[here][0], atol=1e-5)
