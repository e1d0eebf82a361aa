"""Implicit rewards: normalised over a group, as pairs, and PRIME's advantage; by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from creditrl.errors import CreditInputError
from creditrl.trainers.credit.implicit import (
    group_normalised,
    outcome_pairs,
    prime_advantage,
    scaled_by_return,
    success_weights,
)
from creditrl.trainers.credit.whiten import whiten


def test_turns_are_normalised_over_their_group():
    # Group 0: 1, 2, 3: mean 2, unbiased std 1. Group 1: equal values.
    found = group_normalised([1, 2, 3, 5, 5], [0, 0, 0, 1, 1])
    np.testing.assert_allclose(found, [-1, 0, 1, 0, 0], atol=1e-5)


def test_rounding_noise_is_not_blown_up():
    noise = np.array([1e-6, -1e-6, 2e-6, 0.0])
    assert np.abs(group_normalised(noise, [0] * 4)).max() < 1.5  # of unit size without a floor
    assert np.abs(group_normalised(noise, [0] * 4)).max() > 0.5
    assert np.abs(group_normalised(noise, [0] * 4, floor=5e-4)).max() < 5e-3


def test_the_largest_reversed_sum_scales():
    # Sums from each row on: 1 + 2 - 4 = -1, -2, -4; and 3.
    np.testing.assert_allclose(
        scaled_by_return([1, 2, -4, 3], [0, 0, 0, 1]), np.array([1, 2, -4, 3]) / 4, atol=1e-5
    )


def test_pairs_are_all_successes_with_all_failures_of_a_group():
    success, group = [1, 0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 2, 0]
    assert outcome_pairs(success, group).tolist() == [[0, 1], [0, 2], [0, 6]]
    assert outcome_pairs([1, 1], [0, 0]).shape == (0, 2)


def test_the_pairwise_loss_and_its_gradient():
    score = np.array([0.5, 1.0, -0.2])
    pairs = np.array([[0, 1], [0, 2]])

    def loss(values):
        gaps = [values[0] - values[1], values[0] - values[2]]
        return np.mean([np.log1p(np.exp(-gap)) for gap in gaps])

    weight, found, accuracy = success_weights(score, pairs)
    assert found == pytest.approx(loss(score))
    assert accuracy == 0.5
    for i in range(3):
        step = np.zeros(3)
        step[i] = 1e-5
        slope = (loss(score + step) - loss(score - step)) / 2e-5
        assert weight[i] == pytest.approx(slope, abs=1e-6)
    assert success_weights(score, np.zeros((0, 2)))[1:] == (0.0, 0.0)


def test_primes_advantage_by_hand():
    # Two samples: tokens (0.2, 0.4) with outcome 1, and (0.1) with outcome 0; n = 2.
    # Process: factor 2, baseline (0.3 + 0.1) / 1 = 0.4: 0, 0.4 and -0.2.
    # Outcome: 2 * 1 - 1 = 1 and 2 * 0 - 1 = -1, on the last tokens.
    # 5 and 5: rewards 0, 2 + 5 = 7 | -1 - 5 = -6; sums from the end: 7, 7 | -6.
    found = prime_advantage([0.2, 0.4, 0.1], [1, 0], [0, 0, 1], [0, 0])
    np.testing.assert_allclose(found, whiten(np.array([7.0, 7.0, -6.0])), atol=1e-5)
    with pytest.raises(CreditInputError, match="outcome 0.5: expected 0 or 1"):
        prime_advantage([0.1], [0.5], [0], [0])
    assert len(prime_advantage([], [], [], [])) == 0


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1))
def test_group_advantages_sum_to_zero_and_do_not_know_the_order(seed):
    rng = np.random.default_rng(seed)
    value, group = rng.normal(size=20), rng.integers(0, 4, size=20)
    found = group_normalised(value, group)
    for number in np.unique(group):
        assert found[group == number].sum() == pytest.approx(0, abs=1e-4)
    order = rng.permutation(20)
    np.testing.assert_allclose(
        group_normalised(value[order], group[order]), found[order], atol=1e-4
    )
    # Scale and shift play no part where the floor does not act.
    np.testing.assert_allclose(group_normalised(3 * value + 7, group), found, atol=1e-3)
