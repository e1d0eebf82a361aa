from __future__ import annotations

import numpy as np
import pytest

from creditrl.trainers.credit.kl_reward import kl_reward


@pytest.mark.parametrize(
    ("kind", "kl"),
    # d = log pi - log pi_ref = -1 + 3 = 2: 2; 4/2; e^-2 + 2 - 1. With -3: -3; 9/2; e^3 - 3 - 1.
    [
        ("k1", [2.0, -3.0]),
        ("k2", [2.0, 4.5]),
        ("k3", [np.exp(-2) + 1, np.exp(3) - 4]),
        ("abs", [2.0, 3.0]),
    ],
)
def test_kl_reward_by_hand(kind, kl):
    reward_M = kl_reward([-1, -5], [-3, -2], 0.5, kind)
    np.testing.assert_allclose(reward_M, -0.5 * np.array(kl), rtol=1e-6)


def test_equal_policies_cost_nothing_and_log_ratios_are_clamped_at_20():
    for kind in ("k1", "k2", "k3", "abs"):
        assert kl_reward([-1.5], [-1.5], 1.0, kind)[0] == 0
        assert np.isfinite(kl_reward([-1e4, 0], [0, -1e4], 1.0, kind)).all()
    np.testing.assert_allclose(kl_reward([-30, 0], [0, -30], 1.0), [20, -20])
    np.testing.assert_allclose(kl_reward([-30], [0], 1.0, "abs", log_ratio_limit=3), [-3])
