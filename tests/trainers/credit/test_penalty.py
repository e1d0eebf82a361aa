from __future__ import annotations

import numpy as np

from creditrl.trainers.credit.penalty import ungrounded_penalty
from creditrl.trainers.credit.returns import discounted_return


def test_the_penalty_affects_only_its_own_turn():
    penalty_N = ungrounded_penalty([True, True, False])
    np.testing.assert_allclose(penalty_N, [0, 0, -0.1])
    # After discounting the earlier turns keep their return of 1; in the reward they would not.
    return_N = discounted_return([0, 0, 1], [0, 0, 0], 1.0)
    np.testing.assert_allclose(return_N + penalty_N, [1, 1, 0.9])
    np.testing.assert_allclose(discounted_return([0, 0, 1] + penalty_N, [0, 0, 0], 1.0), [0.9] * 3)
    assert (ungrounded_penalty([True, False], 0.0) == 0).all()
