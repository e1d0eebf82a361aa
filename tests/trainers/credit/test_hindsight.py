"""HISR's importance and modulated rewards: the paper's printed cases, and cases by hand."""

from __future__ import annotations

import numpy as np
import pytest

from creditrl.trainers.credit.hindsight import modulated, segment_reward, turn_importance

PRINTED = [
    ((0.069, 0.118, 0.132, 0.681), (0.127, 0.392, 0.286, 0.195), (0.039, 0.205, 0.167, 0.589)),
    (
        (0.030, 0.092, 0.045, 0.016, 0.818),
        (0.220, 0.291, 0.240, 0.110, 0.139),
        (0.041, 0.168, 0.068, 0.011, 0.712),
    ),
    (
        (0.415, 0.209, 0.135, 0.113, 0.128),
        (0.125, 0.299, 0.227, 0.120, 0.229),
        (0.275, 0.332, 0.164, 0.073, 0.156),
    ),
]


@pytest.mark.parametrize(("reward", "importance", "expected"), PRINTED)
def test_the_papers_published_cases(reward, importance, expected):
    zeros, ones = np.zeros(len(reward), dtype=int), np.ones(len(reward))
    for options in ({}, {"outcome_S": ones}, {"signed": False}):
        found = modulated(reward, importance, zeros, **options)
        np.testing.assert_allclose(found, expected, atol=0.0015)
    # The L2 norm misses them.
    product = np.multiply(reward, importance)
    assert np.abs(product / np.linalg.norm(product) - expected).max() > 0.2


def test_scaling_by_outcome_keeps_a_failed_trajectory_at_zero():
    reward, importance, episode = [1e-3, -3e-3, 0.5], [1, 1, 2], [0, 0, 1]
    np.testing.assert_allclose(modulated(reward, importance, episode), [0.25, -0.75, 1.0])
    scaled = modulated(reward, importance, episode, [0, 0, 1])
    np.testing.assert_allclose(scaled, [0, 0, 1])
    assert not modulated([0.0, 0.0], [1, 1], [0, 0]).any()
    assert modulated([], [], []).shape == (0,)


def test_with_positive_shares_negative_rewards_of_a_success_count_as_zero():
    # Episode 0 is left with 0.2 * 1 and 0.3 * 2; episode 1 with nothing, so that z alone shares.
    reward, importance = [0.2, -0.6, 0.3, -0.1, -0.3], [1, 5, 2, 1, 3]
    episode = [0, 0, 0, 1, 1]
    found = modulated(reward, importance, episode, signed=False)
    np.testing.assert_allclose(found, [0.25, 0, 0.75, 0.25, 0.75])
    failed = modulated(reward, importance, episode, [1, 1, 1, 0, 0], signed=False)
    np.testing.assert_allclose(failed, [0.25, 0, 0.75, 0, 0])
    # As printed, the second success is as bad as a failure can be.
    assert modulated(reward, importance, episode)[3:].sum() == pytest.approx(-1)


def test_importance_is_the_mean_log_ratio_over_beta():
    # Turn 0: ratios 0.3, 0.1: mean 0.2; turn 1 has no tokens; turn 2: -0.3. beta 0.5.
    found = turn_importance([-0.7, -0.9, -1.3], [-1, -1, -1], [0, 0, 2], 3, beta=0.5)
    np.testing.assert_allclose(found, np.exp([0.4, 0.0, -0.6]), rtol=1e-5)
    assert turn_importance([90.0], [0.0], [0], 1, beta=0.1)[0] == pytest.approx(np.exp(20))


def test_the_reward_of_turns():
    # Two segments of episode 0 (turns 0-1 and 2), one of episode 1. z: 1, 2 | 1 and 1.
    reward = segment_reward(
        np.array([9.0, -0.2, 0.4, 0.5]),
        np.array([1.0, 2.0, 1.0, 1.0]),
        np.array([0, 0, 1, 2]),
        np.array([0, 0, 0, 1]),
        np.array([True, False, True, True]),
    )
    # Segment products -0.2 * 3 and 0.4 * 1: -0.6 and 0.4; alpha is the paper's, 0.3. What stands
    # before a segment's end is not read.
    expected = 0.7 * np.array([0, -0.6, 0.4, 1]) + 0.3 * np.array([1, 0, 1, 1])
    np.testing.assert_allclose(reward, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("importance", "shares"),
    [
        # Segments of three turns and one, equal rewards. z 1, 2, 3 and 2: 6 and 2.
        ([1.0, 2.0, 3.0, 2.0], [0.75, 0.25]),
        # Without hindsight a segment's length is no importance.
        (None, [0.5, 0.5]),
    ],
)
def test_the_importance_of_a_segment_is_the_sum_over_its_turns(importance, shares):
    reward = segment_reward(
        np.full(4, 0.3),
        None if importance is None else np.array(importance),
        np.array([0, 0, 0, 1]),
        np.zeros(4, dtype=np.int64),
        np.zeros(4, dtype=np.bool_),
        alpha=0.0,
        outcome_N=np.ones(4),
    )
    np.testing.assert_allclose(reward, [0, 0, shares[0], shares[1]], rtol=1e-6)


def test_normalised_segment_rewards_favour_the_longer_success():
    # From the same third turn: finish at once, or two turns later. What a turn's return counts is
    # the shares from there on, so delay is rewarded, by shares that are exact.
    episode = np.array([0] * 3 + [1] * 5)
    reward = segment_reward(
        np.ones(8),
        np.ones(8),
        np.arange(8),
        episode,
        np.ones(8, dtype=np.bool_),
        alpha=0.0,
        outcome_N=np.ones(8),
    )
    assert reward[2:3].sum() == pytest.approx(1 / 3)
    assert reward[5:8].sum() == pytest.approx(3 / 5)
