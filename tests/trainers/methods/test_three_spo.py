"""3SPO's credit: a transition compared with the others from its state."""

from __future__ import annotations

import numpy as np

from creditrl.trainers.credit import token_table, turn_table
from creditrl.trainers.methods.three_spo import ThreeSPO, ThreeSPOConfig

# Four transitions out of one state: a move, a success, and two that were not executed.
TURNS = turn_table(
    reward=[0.5, 1.0, 0.0, 0.0], episode=[0, 1, 2, 3], grounded=[True, True, False, False]
)
TOKENS = token_table([0, 1, 2, 3])


def test_transitions_of_a_state_are_compared_and_failed_actions_are_penalised():
    # Mean 3/8, deviations 1/8, 5/8, -3/8, -3/8; unbiased variance (1 + 25 + 9 + 9) / 64 / 3 =
    # 11/48, std 0.478714.
    credit = ThreeSPO(ThreeSPOConfig()).credit(TURNS, TOKENS)
    step = np.array([1, 5, -3, -3]) / 8 / 0.478714
    np.testing.assert_allclose(credit.parts["step"], step, atol=1e-5)
    np.testing.assert_allclose(credit.advantage_N, step - np.array([0, 0, 0.1, 0.1]), atol=1e-5)
    credit = ThreeSPO(ThreeSPOConfig(normalise="mean", invalid_penalty=0.0)).credit(TURNS, TOKENS)
    np.testing.assert_allclose(credit.advantage_N, np.array([1, 5, -3, -3]) / 8, atol=1e-6)
