"""GSPO and Dr.GRPO: what they share with GRPO, and what they change."""

from __future__ import annotations

import numpy as np
import pytest

from creditrl.trainers.credit import token_table, turn_table
from creditrl.trainers.losses.aggregate import aggregation_weights
from creditrl.trainers.methods.dr_grpo import DrGRPO, DrGRPOConfig
from creditrl.trainers.methods.grpo import GRPO, GRPOConfig
from creditrl.trainers.methods.gspo import GSPO, GSPOConfig

torch = pytest.importorskip("torch")

# One group of three episodes with returns 1, 0, 0 and lengths 2, 1, 1.
GROUP = turn_table(reward=[0, 1, 0, 0], episode=[0, 0, 1, 2])
TOKENS = token_table([0, 1, 2, 3])


def test_dr_grpo_divides_neither_by_the_deviation_nor_by_the_length():
    method = DrGRPO(DrGRPOConfig())
    credit = method.credit(GROUP, TOKENS)
    np.testing.assert_allclose(credit.advantage_N, [2 / 3, 2 / 3, -1 / 3, -1 / 3], rtol=1e-6)
    assert not np.allclose(credit.advantage_N, GRPO(GRPOConfig()).credit(GROUP, TOKENS).advantage_N)
    # Two episodes of 3 tokens and 1: every token weighs 1/2, whatever its episode's length.
    weights = aggregation_weights(method.policy_loss().aggregate, [0, 0, 1, 2], [0, 0, 0, 1])
    np.testing.assert_allclose(weights, 0.5)


def test_gspo_has_grpos_advantage_and_one_ratio_a_sequence():
    from creditrl.trainers.losses.policy import policy_loss

    method = GSPO(GSPOConfig())
    same = GRPO(GRPOConfig()).credit(GROUP, TOKENS).advantage_N
    np.testing.assert_allclose(method.credit(GROUP, TOKENS).advantage_N, same)
    # Log-ratios 0.0004 and 0.0002: the sequence's is their mean, 0.0003, within 1 + 4e-4; GRPO's
    # clip would not see either. At 0.0006 and 0.0004 the mean 0.0005 is beyond it: no gradient.
    for shift, inside in (((4e-4, 2e-4), True), ((6e-4, 4e-4), False)):
        new = torch.tensor([-1.0 + shift[0], -2.0 + shift[1]], requires_grad=True)
        loss, _ = policy_loss(
            new,
            np.array([-1.0, -2.0], dtype=np.float32),
            np.ones(2, dtype=np.float32),
            np.array([0, 1]),
            np.array([0, 0]),
            method.policy_loss(),
        )
        loss.backward()
        assert bool(new.grad.abs().max() > 0) is inside
        if inside:
            # The same gradient for both tokens: ratio / 2 each.
            np.testing.assert_allclose(new.grad.numpy(), -np.exp(3e-4) / 2, rtol=1e-4)
