"""Groups of equal last observations, level by level, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from creditrl.trainers.credit import turn_table
from creditrl.trainers.credit.history_group import (
    HistoryGroupConfig,
    history_group,
    same_history,
)

# Three episodes of two turns. All begin in state 1. Two come to state 3 from there, by different
# rewards; the third is in state 3 at its second turn too, but began in state 2.
STATES = [1, 3, 1, 3, 2, 3]
TURNS = turn_table(
    reward=[0, 1, 0, 0, 0, 2], episode=[0, 0, 1, 1, 2, 2], state=STATES, group=[0] * 6
)

# Two episodes of three turns; all rewards 1 in the one, 0 in the other. Returns 3, 2, 1 | 0, 0, 0.
PAIR = turn_table(reward=[1, 1, 1, 0, 0, 0], episode=[0, 0, 0, 1, 1, 1], state=[1, 1, 2, 1, 2, 1])


def test_histories_are_distinguished_up_to_their_length():
    episode = np.array([0, 0, 1, 1, 2, 2])
    state = np.array(STATES)
    np.testing.assert_array_equal(same_history(state, episode, 1) == 2, np.array(STATES) == 3)
    two = same_history(state, episode, 2)
    # (1,3) twice, (2,3) once; the first turns have no two states.
    assert two[1] == two[3] != two[5]
    assert two[[0, 2, 4]].tolist() == [-1, -1, -1]
    assert (same_history(state, episode, 3) == -1).all()


@pytest.mark.parametrize("power", [1.0, 2.0, 0.0, -1.0])
def test_levels_are_weighted_by_a_power_and_empty_ones_dropped(power):
    # gamma 1, mean only, H = 1: levels k = 1 (weight 2^p) and k = 2 (weight 3^p).
    # Returns: turn 0: 1, 1: 1, 2: 0, 3: 0, 4: 2, 5: 2.
    # k = 1: state 1: {1, 0} -> +-1/2; state 3: {1, 0, 2}, mean 1 -> 0, -1, 1; state 2 alone -> 0.
    # k = 2, of second turns: (1,3): {1, 0} -> +-1/2; (2,3) alone.
    # turn 0: only k = 1, 1/2. turn 1: k=1 is exactly 0, dropped: 1/2. turn 3: (2^p * -1 + 3^p *
    # -1/2) / (2^p + 3^p). turn 5: only k = 1: 1.
    cfg = HistoryGroupConfig(history=1, gamma=1.0, normalise="mean", power=power)
    third = (-(2.0**power) - 3.0**power / 2) / (2.0**power + 3.0**power)
    np.testing.assert_allclose(
        history_group(TURNS, cfg), [0.5, 0.5, -0.5, third, 0.0, 1.0], atol=1e-6
    )


def test_epsilon_is_added_to_every_levels_deviation():
    # Two episodes of a turn, returns 0 and 2e-6: the biased deviation is 1e-6, the unbiased one of
    # the base group sqrt(2) 1e-6. Level 0 weighs 1, level 1 weighs 2.
    turns = turn_table([0, 2e-6], [0, 1], state=[1, 1])
    cfg = HistoryGroupConfig(history=0, gamma=0.0)
    np.testing.assert_allclose(history_group(turns, cfg), [-0.5, 0.5], rtol=1e-5)
    with_base = history_group(turns, HistoryGroupConfig(history=0, base_group=True, epsilon=2e-6))
    expected = (1 / (np.sqrt(2) + 2) + 2 / 3) / 3
    np.testing.assert_allclose(with_base, [-expected, expected], rtol=1e-5)


def test_the_papers_numbers_are_the_defaults():
    assert HistoryGroupConfig() == HistoryGroupConfig(
        history=2, gamma=0.95, normalise="mean-std", base_group=False, power=1.0, epsilon=1e-6
    )


def test_the_deviation_is_the_biased_one():
    # State 3 alone: {1, 0, 2}: biased std sqrt(2/3); state 1: {1, 0}: 1/2.
    cfg = HistoryGroupConfig(history=0, gamma=1.0)
    s = np.sqrt(2 / 3)
    np.testing.assert_allclose(history_group(TURNS, cfg), [1, 0, -1, -1 / s, 0, 1 / s], atol=1e-4)


def test_a_turn_is_in_only_the_levels_it_has_enough_observations_for():
    # H = 2, so k = 1, 2, 3 with weights 2, 3, 4; only centred.
    # k = 1: state 1: {3, 2, 0, 0}, mean 5/4; state 2: {1, 0}, mean 1/2.
    # k = 2, from the second turn on: (1,1), (1,2) | (1,2), (2,1): the two (1,2) are +-1/2.
    # k = 3, on the third: (1,1,2) | (1,2,1), each alone. The first turns have k = 1 alone, although
    # both stand at the beginning before state 1.
    cfg = HistoryGroupConfig(history=2, gamma=1.0, normalise="mean")
    np.testing.assert_allclose(
        history_group(PAIR, cfg), [7 / 4, 3 / 4, 1 / 2, -5 / 4, -1 / 2, -5 / 4], atol=1e-6
    )
    # Divided by biased deviations: of {3, 2, 0, 0} sqrt(27/16), of {1, 0} 1/2.
    s = np.sqrt(27 / 16)
    cfg = HistoryGroupConfig(history=2, gamma=1.0)
    np.testing.assert_allclose(
        history_group(PAIR, cfg), [1.75 / s, 0.75 / s, 1, -1.25 / s, -1, -1.25 / s], atol=1e-4
    )


def test_the_base_group_adds_the_episodes_advantage():
    # k = 0, weight 1: outcomes 3, 3, 3, 0, 0, 0 of the six turns: +-3/2, not of returns 3, 2, 1.
    cfg = HistoryGroupConfig(history=2, gamma=1.0, normalise="mean", base_group=True)
    base = np.array([1, 1, 1, -1, -1, -1]) * 1.5
    levels = np.array([2 * 1.75, 2 * 0.75, 5 * 0.5, 2 * -1.25, 5 * -0.5, 2 * -1.25])
    weights = np.array([3, 3, 6, 3, 6, 3])
    np.testing.assert_allclose(history_group(PAIR, cfg), (base + levels) / weights, atol=1e-6)
    # Divided: the base by the unbiased deviation over the six turns, sqrt(6 * 9/4 / 5).
    s = np.sqrt(27 / 16)
    levels = np.array([2 * 1.75 / s, 2 * 0.75 / s, 5, 2 * -1.25 / s, -5, 2 * -1.25 / s])
    cfg = HistoryGroupConfig(history=2, gamma=1.0, base_group=True)
    np.testing.assert_allclose(
        history_group(PAIR, cfg), (base / np.sqrt(2.7) + levels) / weights, atol=1e-4
    )


def test_a_penalty_before_the_comparison_reaches_every_level():
    # 0.6 off the fourth turn: at k = 1 {3, 2, -0.6, 0}, mean 1.1; outcomes 3, 3, 3, -0.6, 0, 0,
    # mean 1.4; (1,2) as before.
    penalty = [0, 0, 0, -0.6, 0, 0]
    cfg = HistoryGroupConfig(history=2, gamma=1.0, normalise="mean", base_group=True)
    base = np.array([1.6, 1.6, 1.6, -2.0, -1.4, -1.4])
    levels = np.array([2 * 1.9, 2 * 0.9, 5 * 0.5, 2 * -1.7, 5 * -0.5, 2 * -1.1])
    np.testing.assert_allclose(
        history_group(PAIR, cfg, penalty_N=penalty),
        (base + levels) / [3, 3, 6, 3, 6, 3],
        atol=1e-6,
    )


def test_given_returns_replace_discounted_ones():
    cfg = HistoryGroupConfig(history=0, gamma=0.5, normalise="mean")
    found = history_group(PAIR, cfg, return_N=[4, 0, 8, 0, 2, 0])
    np.testing.assert_allclose(found, [3, -1, 3, -1, -3, -1], atol=1e-6)


def test_no_turns_and_equal_returns_have_no_credit():
    empty = turn_table([], np.zeros(0, int), state=np.zeros(0, int))
    assert history_group(empty, HistoryGroupConfig(base_group=True)).shape == (0,)
    equal = turn_table([0.1] * 6, [0, 0, 1, 1, 2, 2], state=STATES)
    assert not history_group(equal, HistoryGroupConfig(gamma=0.0)).any()
