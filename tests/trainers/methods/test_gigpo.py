"""GiGPO: what its two levels count, and when the penalty is subtracted, by hand."""

from __future__ import annotations

import numpy as np

from creditrl.trainers.credit import token_table, turn_table
from creditrl.trainers.methods.gigpo import GiGPO, GiGPOConfig

# Three turns and success, the second not executed; one turn and failure. Three turns leave state 1.
TURNS = turn_table(
    reward=[0, 0, 1, 0],
    episode=[0, 0, 0, 1],
    state=[1, 1, 2, 1],
    grounded=[True, False, True, True],
)
TOKENS = token_table(range(4))


def credit(**changes):
    return GiGPO(GiGPOConfig(gamma=1.0, **changes)).credit(TURNS, TOKENS)


def test_an_episode_counts_once_or_once_per_turn():
    np.testing.assert_allclose(credit().parts["outcome"], [0.5, 0.5, 0.5, -0.5])
    # Outcomes 1, 1, 1, 0: mean 3/4, unbiased std 1/2.
    rows = credit(over="rows")
    np.testing.assert_allclose(rows.parts["outcome"], [0.25, 0.25, 0.25, -0.75])
    np.testing.assert_allclose(
        credit(over="rows", normalise="mean-std").parts["outcome"],
        [0.5, 0.5, 0.5, -1.5],
        rtol=1e-5,
    )
    # The step level has rows of turns in either case: returns 1, 1, 0 at state 1.
    np.testing.assert_allclose(rows.parts["step"], [1 / 3, 1 / 3, 0, -2 / 3], rtol=1e-6)
    np.testing.assert_array_equal(rows.parts["step"], credit().parts["step"])


def test_the_penalty_is_subtracted_after_or_before_the_comparison():
    after = credit()
    np.testing.assert_allclose(
        after.advantage_N, [0.5 + 1 / 3, 0.4 + 1 / 3, 0.5, -0.5 - 2 / 3], rtol=1e-6
    )
    # Outcomes 1, 0.9, 1 | 0: over rows mean 0.725, by first turns 0.5. Returns at state 1: 1, 0.9
    # and 0, mean 1.9 / 3.
    step = np.array([1 - 1.9 / 3, 0.9 - 1.9 / 3, 0, -1.9 / 3])
    for over, outcome in (
        ("rows", [0.275, 0.175, 0.275, -0.725]),
        ("trajectories", [0.5, 0.4, 0.5, -0.5]),
    ):
        before = credit(over=over, penalty_order="before")
        np.testing.assert_allclose(before.parts["outcome"], outcome, rtol=1e-5)
        np.testing.assert_allclose(before.parts["step"], step, atol=1e-6)
        np.testing.assert_allclose(before.advantage_N, outcome + step, rtol=1e-5)
    free = credit(penalty_order="before", invalid_penalty=0.0)
    np.testing.assert_array_equal(free.advantage_N, credit(invalid_penalty=0.0).advantage_N)
