from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from creditrl.trainers.credit.whiten import whiten

values = st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=20)


def test_whiten_by_hand():
    # Mean 2, unbiased variance (1 + 0 + 1) / 2 = 1.
    np.testing.assert_allclose(whiten([1, 2, 3]), [-1, 0, 1], atol=1e-6)


def test_weights_count_a_row_several_times():
    # 1 twice and 4 once: mean 2, variance (1 + 1 + 4) / 2 = 3.
    expected = np.array([-1, 2]) / np.sqrt(3)
    np.testing.assert_allclose(whiten([1, 4], weight_N=[2, 1]), expected, atol=1e-6)
    np.testing.assert_allclose(whiten([1, 1, 4])[1:], expected, atol=1e-6)


def test_the_mask_leaves_rows_out_even_nan():
    white_N = whiten([1, np.nan, 2, 3], mask_N=[True, False, True, True])
    np.testing.assert_allclose(white_N, [-1, 0, 0, 1], atol=1e-6)


def test_without_centring_the_mean_is_kept():
    np.testing.assert_allclose(whiten([1, 2, 3], centre=False), [1, 2, 3], rtol=1e-6)
    np.testing.assert_allclose(whiten([3, 3], centre=False), [3e4, 3e4])


def test_a_small_variance_has_1e_8_added():
    # Unbiased variance 2e-8.
    np.testing.assert_allclose(whiten([0, 2e-4]), np.array([-1, 1]) / np.sqrt(3), rtol=1e-5)


@given(values)
@settings(max_examples=30)
def test_the_result_has_mean_zero_and_variance_one(value):
    white_N = whiten(value)
    if np.ptp(value) > 1e-2:
        assert abs(white_N.mean()) < 1e-4
        np.testing.assert_allclose(white_N.var(ddof=1), 1, rtol=1e-2)


def test_values_equal_up_to_rounding_give_exactly_zero():
    for count in range(1, 10):
        assert (whiten([-123456.7] * count) == 0).all()
    # 0.1 + 0.2 is not 0.3; sqrt(1e-8) would leave a trace of it.
    assert (whiten([0.1 + 0.2, 0.3]) == 0).all()


def test_whiten_with_no_rows_and_with_every_row_masked():
    assert whiten([]).shape == (0,)
    assert whiten([1, 2], mask_N=[False, False]).tolist() == [0, 0]
