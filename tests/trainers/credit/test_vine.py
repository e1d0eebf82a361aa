"""Advantages between measured values, by hand."""

from __future__ import annotations

import numpy as np

from creditrl.trainers.credit import turn_table, vine_advantage


def values(*value):
    """Return the columns of these values, None where a state has none."""
    return {
        "value_N": [0.0 if v is None else v for v in value],
        "valued_N": [float(v is not None) for v in value],
    }


def test_with_every_state_valued_it_is_the_papers_advantage():
    valued = values(0.5, 0.25, 0.75, 0.5, 0.25)
    turns = turn_table([0.1, 0, 1, 0, 1], [0, 0, 0, 1, 1], scores=valued)
    # 0.1 + 0.25 - 0.5, 0 + 0.75 - 0.25, and 1 - 0.75: nothing comes after the end. Then the next.
    expected = [-0.15, 0.5, 0.25, -0.25, 0.75]
    np.testing.assert_allclose(vine_advantage(turns), expected, atol=1e-6)
    halved = [-0.275, 0.125, 0.25, -0.375, 0.75]
    np.testing.assert_allclose(vine_advantage(turns, 0.5), halved, atol=1e-6)
    np.testing.assert_allclose(vine_advantage(turns, 0), [-0.4, -0.25, 0.25, -0.5, 0.75], atol=1e-6)


def test_a_missing_value_counts_as_0():
    turns = turn_table([0, 1], [0, 0], scores={"valued_N": [1, 1]})
    np.testing.assert_allclose(vine_advantage(turns), [0, 1])


def test_turns_between_two_values_share_their_difference():
    turns = turn_table([0.5, 0.5, 1, 0], [0, 0, 0, 0], scores=values(0.5, None, 0.75, None))
    # 0.5 + 0.5 + 0.75 - 0.5, discounted by halves 0.5 + 0.25 + 0.1875 - 0.5; then 1 + 0 - 0.75.
    np.testing.assert_allclose(vine_advantage(turns), [1.25, 1.25, 0.25, 0.25])
    np.testing.assert_allclose(vine_advantage(turns, 0.5), [0.4375, 0.4375, 0.25, 0.25])


def test_before_the_first_value_the_groups_other_returns_are_the_baseline():
    turns = turn_table([0, 1, 0, 2], [0, 0, 1, 2], group=[0] * 4, scores=values(None, 0.5, None, 1))
    # Others of the first came to 0 and 2, of the second to 1 and 2.
    np.testing.assert_allclose(vine_advantage(turns), [0.5 - 1.0, 0.5, -1.5, 1.0])
    # Discounted by halves the first comes to 0.5 itself, and its value counts 0.25 there.
    np.testing.assert_allclose(vine_advantage(turns, 0.5), [0.25 - 1.0, 0.5, -1.25, 1.0])


def test_without_values_it_is_leave_one_out_and_a_single_episode_keeps_its_return():
    turns = turn_table([0, 1, 0, 0, 2], [0, 0, 1, 1, 2], group=[0, 0, 0, 0, 1])
    np.testing.assert_allclose(vine_advantage(turns), [1, 1, -1, -1, 2])
