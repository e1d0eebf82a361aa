"""ArCHer's arithmetic, by hand."""

from __future__ import annotations

import numpy as np

from creditrl.trainers.credit.archer import lowest, polyak, q_targets


def test_a_q_target_is_the_reward_plus_the_discounted_target_value():
    # 0 + 0.9 * (0.5, 0.7); the second turn ended its episode, whatever is said of what follows.
    found = q_targets([0.0, 1.0], [[0.5, 0.7], [9.0, np.nan]], [False, True], 0.9)
    np.testing.assert_allclose(found, [[0.45, 0.63], [1.0, 1.0]], rtol=1e-6)
    assert found.dtype == np.float32
    np.testing.assert_allclose(q_targets([2.0], [[0.5]], [False], 0.0), [[2.0]])
    # The discount makes a difference, and one twin's target is not another's.
    np.testing.assert_allclose(q_targets([0.0], [[0.5, 0.7]], [False], 1.0), [[0.5, 0.7]])


def test_the_smaller_twin_is_used():
    np.testing.assert_allclose(lowest([[0.5, 0.2], [-1.0, 3.0]]), [0.2, -1.0])


def test_a_target_network_moves_by_tau():
    slow = np.array([1.0, -2.0])
    for expected in ([1.1, -1.8], [1.19, -1.62]):  # towards (2, 0)
        slow = polyak(slow, np.array([2.0, 0.0]), 0.1)
        np.testing.assert_allclose(slow, expected)
    np.testing.assert_array_equal(polyak(slow, np.array([2.0, 0.0]), 1.0), [2.0, 0.0])


def test_the_target_can_be_mixed_with_the_turns_own_return():
    # 3/4 of 0 + 0.5 and 1/4 of the return, which here was 2.
    args = ([0.0], [[0.5, 0.9]], [False], 1.0)
    found = q_targets(*args, return_N=[2.0], returns=0.25)
    np.testing.assert_allclose(found, [[0.875, 1.175]], rtol=1e-6)
    np.testing.assert_allclose(q_targets(*args, return_N=[1.0]), q_targets(*args))
    # The share counts where there is a return, and the return is read where it has a share.
    np.testing.assert_allclose(q_targets(*args, returns=0.5), q_targets(*args))
    np.testing.assert_allclose(q_targets(*args, return_N=[np.nan]), q_targets(*args))
