from __future__ import annotations

import numpy as np
import pytest

from creditrl.errors import CreditInputError
from creditrl.trainers.credit.check import episode_label, finite, ordered


def test_errors_name_episodes_by_their_ids_if_known():
    assert [episode_label(b, ("a", "b")) for b in (0, 1, 2, -1)] == ["a", "b", "2", "-1"]


def test_an_index_must_not_decrease():
    assert ordered("episode_N", [0, 0, 3]).tolist() == [0, 0, 3]
    assert ordered("episode_N", [[]]).shape == (0,)
    with pytest.raises(CreditInputError, match="episode_N falls from 3 to 2 at row 2"):
        ordered("episode_N", [0, 3, 2])
    with pytest.raises(CreditInputError, match=r"has shape \(1, 2\) and dtype int64"):
        ordered("episode_N", [[0, 1]])


def test_a_column_must_be_flat_finite_and_of_the_right_length():
    assert finite("reward_N", [1, 2]).dtype == np.float64
    with pytest.raises(CreditInputError, match=r"reward_N has shape \(1, 2\): expected a flat"):
        finite("reward_N", [[1, 2]])
    with pytest.raises(CreditInputError, match=r"reward_N has shape \(1, 2\): expected \(1,\)"):
        finite("reward_N", [[1, 2]], length=1)
    with pytest.raises(CreditInputError, match=r"has shape \(2,\): expected \(3,\)"):
        finite("reward_N", [1, 2], np.array([0, 0, 1]))
    # A length that is given counts, not that of the episodes.
    assert len(finite("weight_B", [1, 2], np.array([0, 0, 1]), length=2)) == 2
    with pytest.raises(CreditInputError, match="inf at row 1, in episode 1: expected finite"):
        finite("reward_N", [0, np.inf])
    with pytest.raises(CreditInputError, match="nan at row 2, in episode b"):
        finite("reward_N", [0, 0, np.nan], np.array([0, 0, 1]), ("a", "b"))
