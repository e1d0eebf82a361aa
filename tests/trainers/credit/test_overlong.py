"""DAPO's soft punishment of long replies, eq. 13."""

from __future__ import annotations

import numpy as np

from creditrl.trainers.credit.overlong import overlong_penalty


def test_the_penalty_grows_over_the_buffer():
    # Free up to 6 of 10 tokens, then a quarter of the factor for each.
    np.testing.assert_allclose(overlong_penalty([0, 6, 7, 10], 10, 4), [0, 0, -0.25, -1])
    np.testing.assert_allclose(overlong_penalty([7], 10, 4, factor=2), [-0.5])
    # The smallest and the largest buffer.
    np.testing.assert_allclose(overlong_penalty([9, 10], 10, 1), [0, -1])
    np.testing.assert_allclose(overlong_penalty([0, 5], 10, 10), [0, -0.5])
