from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from creditrl.trainers.credit.stats import group_stats, joint_index


def test_group_stats_by_hand():
    # Group 5: 1, 3: mean 2, variance 2 / 1. Group 9: 4, twice: mean 4, variance 0.
    stats = group_stats(np.array([1.0, 4, 3]), np.array([5, 9, 5]), np.array([1.0, 2, 1]))
    assert stats.index_N.tolist() == [0, 1, 0]
    assert stats.size_K.tolist() == [2, 2]
    assert stats.mean_K.tolist() == [2, 4]
    np.testing.assert_allclose(stats.std_K, [np.sqrt(2), 0])
    assert stats.constant_K.tolist() == [False, True]
    # A row that does not count is compared with those that do; it is no rounding of theirs.
    beside = group_stats(np.array([2.0, 2, 1.5]), np.zeros(3, int), np.array([1.0, 1, 0]))
    assert (beside.size_K[0], beside.mean_K[0], beside.std_K[0]) == (2, 2, 0)
    assert beside.constant_K[0] and beside.centred(np.array([2.0, 2, 1.5])).tolist() == [0, 0, -0.5]
    # Nor is one that lies further from the mean than they do from each other; 1e-6 of 1e6 is 1.
    near = group_stats(np.array([1e6, 1e6 + 1, 1e6 + 2]), np.zeros(3, int), np.array([1.0, 0, 0]))
    assert near.centred(np.array([1e6, 1e6 + 1, 1e6 + 2])).tolist() == [0, 0, 2]
    # Half a row twice is one row, which has no deviation.
    halves = group_stats(np.array([0.0, 1.0]), np.zeros(2, int), np.array([0.5, 0.5]))
    assert (halves.size_K[0], halves.mean_K[0], halves.std_K[0]) == (1, 0.5, 0)
    biased = group_stats(np.array([1.0, 3]), np.array([0, 0]), ddof=0)
    assert biased.std_K[0] == 1


def test_equality_up_to_rounding_is_relative_to_magnitude():
    # Zeros; -2 and what rounds to it; 1 and 1.00001; 0 and the smallest step from it.
    value = np.array([0, 0, -2, -2 + 1e-7, 1, 1 + 1e-5, 0, 1e-12])
    group = np.repeat(np.arange(4), 2)
    stats = group_stats(value, group)
    assert stats.constant_K.tolist() == [True, True, False, False]
    np.testing.assert_allclose(stats.rounding_K, [0, 2e-6, 1e-6, 1e-18], rtol=1e-4)


def test_a_member_near_the_mean_of_different_ones_keeps_its_distance():
    value = np.array([0, 2, 1 + 4e-7, 1])
    centred = group_stats(value, np.zeros(4, int)).centred(value)
    np.testing.assert_allclose(centred[3], -1e-7, rtol=1e-3)


def test_no_rows_have_no_groups():
    stats = group_stats(np.zeros(0), np.zeros(0, int))
    for column in (stats.index_N, stats.size_K, stats.mean_K, stats.std_K, stats.constant_K):
        assert column.shape == (0,)
    assert stats.rounding_K.shape == joint_index([], []).shape == (0,)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(2**62, 2**62 + 3)), max_size=30))
@settings(max_examples=25)
def test_the_joint_index_is_equal_where_all_columns_are(pairs):
    first, second = (np.array([p[i] for p in pairs], np.int64) for i in (0, 1))
    index_N = joint_index(first, second)
    assert len(set(index_N.tolist())) == len(set(pairs))
    for i, a in enumerate(pairs):
        for j, b in enumerate(pairs):
            assert (index_N[i] == index_N[j]) == (a == b)
