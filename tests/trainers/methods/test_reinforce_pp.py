"""REINFORCE++: what it whitens over, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from creditrl.trainers.credit import token_table, turn_table
from creditrl.trainers.methods.reinforce_pp import ReinforcePP, ReinforcePPConfig

# Outcomes 0 (two turns of 1 and 3 tokens) and 4 (one turn of 2).
TURNS = turn_table(reward=[0, 0, 4], episode=[0, 0, 1])
TOKENS = token_table([0, 1, 1, 1, 2, 2])


@pytest.mark.parametrize("baseline", [False, True])
@pytest.mark.parametrize(
    ("over", "mean", "variance"),
    [
        ("trajectories", 2, 8),  # of 0, 4
        ("rows", 4 / 3, 16 / 3),  # of 0, 0, 4
        ("tokens", 4 / 3, 64 / 15),  # of 0, 0, 0, 0, 4, 4
    ],
)
def test_it_whitens_over_episodes_turns_or_tokens(baseline, over, mean, variance):
    # The group's mean shifts all values alike here, so both forms agree.
    cfg = ReinforcePPConfig(baseline=baseline, whiten_over=over)
    found = ReinforcePP(cfg).credit(TURNS, TOKENS).advantage_N
    np.testing.assert_allclose(found, (np.array([0, 0, 4]) - mean) / np.sqrt(variance), rtol=1e-6)
    if over != "tokens":
        cfg = ReinforcePPConfig(baseline=baseline, over=over)
        np.testing.assert_array_equal(ReinforcePP(cfg).credit(TURNS, TOKENS).advantage_N, found)
