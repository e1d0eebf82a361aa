"""HGPO: the method around groups of equal histories."""

from __future__ import annotations

import numpy as np

from creditrl.trainers.credit import token_table, turn_table
from creditrl.trainers.credit.history_group import HistoryGroupConfig, history_group
from creditrl.trainers.methods.hgpo import HGPO, HGPOConfig

# Three episodes of two turns. All begin in state 1 but the last, all come to state 3.
TURNS = turn_table(
    reward=[0, 1, 0, 0, 0, 2],
    episode=[0, 0, 1, 1, 2, 2],
    state=[1, 3, 1, 3, 2, 3],
    group=[0] * 6,
    grounded=[True, True, False, True, True, True],
)
TOKENS = token_table(range(6))


def test_the_penalty_affects_only_the_turn_or_if_applied_first_its_group_too():
    cfg = HistoryGroupConfig()
    after = HGPO(HGPOConfig()).credit(TURNS, TOKENS)
    expected = history_group(TURNS, cfg) + [0, 0, np.float32(-0.1), 0, 0, 0]
    np.testing.assert_allclose(after.advantage_N, expected, atol=1e-6)
    for base in (False, True):
        before = HGPO(HGPOConfig(penalty_order="before", base_group=base)).credit(TURNS, TOKENS)
        np.testing.assert_allclose(
            before.advantage_N,
            history_group(
                TURNS, HistoryGroupConfig(base_group=base), penalty_N=[0, 0, -0.1, 0, 0, 0]
            ),
            atol=1e-6,
        )
