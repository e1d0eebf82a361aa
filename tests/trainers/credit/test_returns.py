from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from creditrl.trainers.credit.returns import discounted_return, episode_sum, reverse_scan

lengths = st.lists(st.integers(1, 9), min_size=1, max_size=8)


def test_discounted_return_by_hand():
    # Episode 0: 1 + .5 * (2 + .5 * 4) = 3, 2 + .5 * 4 = 4, 4. Episode 1: 8 + .5 * 1 = 8.5, 1.
    return_N = discounted_return([1, 2, 4, 8, 1], [0, 0, 0, 1, 1], 0.5)
    assert discounted_return([1, 2], [0, 0], 0.0).tolist() == [1, 2]
    np.testing.assert_allclose(return_N, [3, 4, 4, 8.5, 1])
    assert return_N.dtype == np.float32


def test_episode_sum_by_hand_and_episodes_without_turns_sum_to_zero():
    np.testing.assert_allclose(episode_sum([1, 2, 4], [0, 0, 2], 4), [3, 0, 4, 0])


def test_no_turns_give_no_returns():
    assert discounted_return([], [], 0.9).shape == (0,)
    assert episode_sum([], [], 2).tolist() == [0, 0]
    assert episode_sum([], []).shape == (0,)


@given(lengths, st.floats(0, 1), st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_discounted_return_equals_the_sum_of_its_definition(length_B, gamma, seed):
    episode_N = np.repeat(np.arange(len(length_B)), length_B)
    reward_N = np.random.default_rng(seed).normal(size=len(episode_N))
    expected = [
        sum(
            gamma ** (k - t) * reward_N[k]
            for k in range(t, len(reward_N))
            if episode_N[k] == episode_N[t]
        )
        for t in range(len(reward_N))
    ]
    np.testing.assert_allclose(
        discounted_return(reward_N, episode_N, gamma), expected, rtol=1e-5, atol=1e-6
    )


def test_float32_rewards_are_summed_in_float64():
    # 1e8 and 1 cannot be told apart from 1e8 in float32; the difference survives in float64.
    return_N = discounted_return(np.float32([1e8, 1, -1e8]), [0, 0, 0], 1.0)
    assert return_N[0] == 1.0


def test_one_long_episode_beside_many_short_ones_needs_no_padding():
    episode_N = np.concatenate([np.zeros(5_000, int), np.arange(1, 5_001)])
    scan_N = reverse_scan(np.ones(10_000), np.ones(10_000), episode_N)
    assert scan_N[0] == 5_000 and (scan_N[5_000:] == 1).all()
