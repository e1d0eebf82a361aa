"""AgentPRM's values and loss."""

from __future__ import annotations

import numpy as np
import pytest

from creditrl.trainers.credit import promise_before, promise_objective


def test_the_value_of_a_state_is_the_previous_turns_promise():
    # Before first turns: (0.4 + 0.2 + 0.6) / 3.
    found = promise_before([0.4, 0.9, 0.2, 0.6, 0.5], [0, 0, 1, 2, 2])
    np.testing.assert_allclose(found, [0.4, 0.4, 0.4, 0.4, 0.6], rtol=1e-6)


def test_the_loss_by_hand():
    # L_Q = (0.25 + 0.04 + 0.01) / 3 = 0.1; the one later turn: (0.2 - 0.5 - -0.1)^2 = 0.04.
    # Gradient: 2/3 of the gaps, and 2 * 2 * -0.2 = -0.8 by the later promise, +0.8 by the earlier.
    loss, slope_K = promise_objective(
        np.array([0.5, 0.2, 0.1]),
        np.array([0, 0, 1]),
        np.array([1.0, 0.0, 0.0]),
        np.array([9.0, -0.1, 9.0]),
        beta=2.0,
    )
    assert loss == pytest.approx(0.18)
    np.testing.assert_allclose(slope_K, [-1 / 3 + 0.8, 0.4 / 3 - 0.8, 0.2 / 3], rtol=1e-6)


def test_one_turn_episodes_have_no_progress_to_fit():
    one = np.array([0.5])
    loss, slope_K = promise_objective(one, np.array([0]), one - 1, one, beta=5.0)
    assert loss == pytest.approx(1) and slope_K.tolist() == [2.0]


def test_progress_counts_within_each_episode_and_by_its_mean():
    # Steps of 0.2, 0.3 and 0.4 in the second episode, none in the first; promises as labelled.
    promise = np.array([0.7, 0.1, 0.3, 0.6, 1.0])
    loss, _ = promise_objective(promise, np.array([0, 1, 1, 1, 1]), promise, np.zeros(5), beta=3.0)
    assert loss == pytest.approx(3.0 * (0.04 + 0.09 + 0.16) / 3)


def test_the_gradient_matches_the_loss():
    promise, episode = np.array([0.3, 0.9, 0.1, 0.4, 0.8]), np.array([0, 0, 1, 1, 1])
    target, advantage = np.array([1.0, 0.0, 0.5, 0.2, 0.7]), np.array([0.1, -0.2, 0.4, 0.3, 0.6])
    _, slope_K = promise_objective(promise, episode, target, advantage, beta=3.0)
    for k, slope in enumerate(slope_K):
        step = np.eye(5)[k] * 1e-4
        up, down = (
            promise_objective(promise + d, episode, target, advantage, beta=3.0)[0]
            for d in (step, -step)
        )
        assert slope == pytest.approx((up - down) / 2e-4, abs=1e-5)
