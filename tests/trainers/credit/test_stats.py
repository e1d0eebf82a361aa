from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from creditrl.errors import CreditInputError
from creditrl.trainers.credit.stats import group_stats, joint_index


def test_group_stats_by_hand():
    # Group 5: 1, 3: mean 2, variance 2 / 1. Group 9: 4, twice: mean 4, variance 0.
    stats = group_stats(np.array([1.0, 4, 3]), np.array([5, 9, 5]), np.array([1.0, 2, 1]))
    assert stats.index_N.tolist() == [0, 1, 0]
    assert stats.size_K.tolist() == [2, 2]
    assert stats.mean_K.tolist() == [2, 4]
    np.testing.assert_allclose(stats.std_K, [np.sqrt(2), 0])
    assert stats.constant_K.tolist() == [False, True]
    biased = group_stats(np.array([1.0, 3]), np.array([0, 0]), ddof=0)
    assert biased.std_K[0] == 1


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(2**62, 2**62 + 3)), max_size=30))
@settings(max_examples=50)
def test_joint_index_is_equal_where_all_columns_are(pairs):
    first, second = (np.array([p[i] for p in pairs], np.int64) for i in (0, 1))
    index_N = joint_index(first, second)
    assert len(set(index_N.tolist())) == len(set(pairs))
    for i, a in enumerate(pairs):
        for j, b in enumerate(pairs):
            assert (index_N[i] == index_N[j]) == (a == b)


def test_columns_of_unequal_length_cannot_be_joined():
    with pytest.raises(CreditInputError, match="2 and 3 rows"):
        joint_index([1, 2], [1, 2, 3])
