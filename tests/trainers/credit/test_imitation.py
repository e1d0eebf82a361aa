from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from creditrl.trainers.credit.imitation import (
    discriminator_objective,
    discriminator_reward,
    imitation_reward,
)

LOG3 = np.log(3.0)


@pytest.mark.parametrize(
    ("form", "reward"),
    # D = 1/2 and, at a logit of log 3, D = 3/4.
    [
        ("logit", [0.0, LOG3]),
        ("log", [np.log(1 / 2), np.log(3 / 4)]),
        ("gail", [-np.log(1 / 2), -np.log(1 / 4)]),
    ],
)
def test_discriminator_rewards_by_hand(form, reward):
    np.testing.assert_allclose(discriminator_reward([0.0, LOG3], form), reward, rtol=1e-6)


@settings(max_examples=30)
@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=8))
def test_the_logit_reward_is_the_sum_of_the_others_and_stays_finite(logits):
    log, gail = discriminator_reward(logits, "log"), discriminator_reward(logits, "gail")
    assert (log <= 0).all() and (gail >= 0).all()
    np.testing.assert_allclose(log + gail, discriminator_reward(logits), rtol=1e-5, atol=1e-5)


def test_rewards_are_weighted_and_can_be_left_out():
    both = imitation_reward(
        [0.1, -0.2], [1.0, 2.0], [0.0, 10.0], discriminator_weight=0.5, outcome_weight=0.01
    )
    np.testing.assert_allclose(both, [0.6, 0.9], rtol=1e-6)
    np.testing.assert_allclose(imitation_reward([0.1, -0.2], None, [0, 10]), [0.1, -0.2])
    np.testing.assert_allclose(imitation_reward(None, [1.0, 2.0], [0, 10]), [1, 2])


def test_the_objective_is_a_cross_entropy_with_the_losss_gradient():
    # D = 3/4 for an expert's turn and 1/2 for the agent's: -(log 3/4 + log 1/2) / 2.
    loss, slope = discriminator_objective([LOG3, 0.0], [True, False])
    assert loss == pytest.approx(-(np.log(3 / 4) + np.log(1 / 2)) / 2)
    np.testing.assert_allclose(slope, [-0.125, 0.25], rtol=1e-6)
    # No constant does better than log 2 on equally many of both.
    losses = [discriminator_objective([c, c], [True, False])[0] for c in np.linspace(-1, 1, 9)]
    assert min(losses) == losses[4] == pytest.approx(np.log(2))
    loss, slope = discriminator_objective([], [])
    assert loss == 0 and slope.shape == (0,)
