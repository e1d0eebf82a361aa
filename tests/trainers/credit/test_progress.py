"""Progress of turns, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from creditrl.trainers.credit.progress import (
    attributed_reward,
    completed_progress,
    mean_progress,
    progress_r2,
    state_progress,
    sum_objective,
    turns_left,
    visit_values,
)


def test_the_attributed_reward():
    progress, grounded = [0.2, -0.1], np.array([True, False])
    np.testing.assert_allclose(attributed_reward(progress, grounded), [0.7, -0.1])
    np.testing.assert_allclose(
        attributed_reward(progress, grounded, alpha=2, beta=1, grounding="penalty"), [0.4, -1.2]
    )


def test_mean_and_state_progress_and_turns_left_by_hand():
    episode = [0, 0, 1]
    np.testing.assert_allclose(mean_progress([1, 1, 0.5], episode), [0.5, 0.5, 0.5])
    # State 7 is passed by both episodes (by the first one twice), state 8 by the first alone.
    found = state_progress([1, 1, 1, 0], [7, 7, 8, 7], [0, 0, 0, 0], [0, 0, 0, 1])
    np.testing.assert_allclose(found, [0.5, 0.5, 1.0, 0.5])
    apart = state_progress([1, 1, 1, 0], [7, 7, 8, 7], [0, 0, 0, 1], [0, 0, 0, 1])
    np.testing.assert_allclose(apart, [1, 1, 1, 0])
    np.testing.assert_array_equal(turns_left([0, 0, 0, 1]), [2, 1, 0, 0])
    assert mean_progress([], []).shape == turns_left([]).shape == (0,)


def test_the_sum_objective_and_its_gradient():
    output, episode, outcome = np.array([0.2, 0.3, 0.4]), np.array([4, 4, 9]), np.array([1, 1, 0.0])
    loss, slope = sum_objective(output, episode, outcome)
    assert loss == pytest.approx((0.25 + 0.16) / 2)
    np.testing.assert_allclose(slope, [-0.5, -0.5, 0.4], atol=1e-6)


def test_visit_values_by_hand():
    # (s, a) 1 visited twice: gamma^1 * (2 * 1 - 1) = 0.5 and gamma^0 * (-1) = -1: mean -0.25.
    found = visit_values([1, 0, 1], [3, 3, 4], [0, 0, 0], [1, 0, 0], gamma=0.5)
    np.testing.assert_allclose(found, [0.375, 0.375, 1.0])
    # An outcome between 0 and 1, and the paper's discount: 0.95 * (2 * 0.75 - 1).
    np.testing.assert_allclose(visit_values([0.75], [0], [0], [1]), [(0.475 + 1) / 2])
    assert visit_values([], [], [], []).shape == state_progress([], [], [], []).shape == (0,)


def test_the_estimators_error_goes_to_the_last_turn():
    progress, episode = [0.5, 0.1, 0.3], [0, 0, 1]
    outcome = [1.0, 1.0, 0.0]  # missed: 0.4 and -0.3
    np.testing.assert_allclose(completed_progress(progress, outcome, episode), [0.5, 0.5, 0.0])
    assert not len(completed_progress([], [], []))


def test_the_r2_of_contributions_is_computed_on_their_sums():
    # Sums 0.6 and 0.1 for outcomes 1 and 0, whose variance is 1/4.
    found = progress_r2([0.5, 0.1, 0.1], [1, 1, 0], [0, 0, 1])
    assert found == pytest.approx(1 - (0.16 + 0.01) / 2 / 0.25)
    assert progress_r2([0.5, 0.5, 0.0], [1, 1, 0], [0, 0, 1]) == 1.0
    assert progress_r2([0.5, 0.5], [1, 1], [0, 1]) == 0.0 == progress_r2([], [], [])
