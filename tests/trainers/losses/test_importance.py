"""Truncated importance sampling: weights and gradients by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from creditrl.errors import CreditInputError
from creditrl.trainers.losses.config import PolicyLossConfig
from creditrl.trainers.losses.importance import importance_weights
from creditrl.trainers.losses.metrics import mean_metrics
from creditrl.trainers.losses.policy import policy_loss

OLD = torch.tensor([-1.0, -2.0, -0.5, -1.0])
# The trainer finds the tokens 1.5, 4, 0.5 and 1 times as probable as the sampler did.
SAMPLER = OLD - torch.tensor([1.5, 4.0, 0.5, 1.0]).log()
TURN = torch.tensor([0, 0, 1, 2])
EPISODE = torch.tensor([0, 0, 0, 1])
ZERO = torch.zeros(4)


@pytest.mark.parametrize(
    ("unit", "cap", "weights", "capped"),
    [
        (None, 2.0, [1.5, 2.0, 0.5, 1.0], [False, True, False, False]),
        (None, 8.0, [1.5, 4.0, 0.5, 1.0], [False, False, False, False]),
        (TURN, 2.0, [2.0, 2.0, 0.5, 1.0], [True, True, False, False]),  # 1.5 * 4
        (EPISODE, 8.0, [3.0, 3.0, 3.0, 1.0], [False, False, False, False]),  # 1.5 * 4 * 0.5
        (EPISODE, 2.0, [2.0, 2.0, 2.0, 1.0], [True, True, True, False]),
        # A weight of just the cap is not capped.
        (torch.arange(4), 1.0, [1.0, 1.0, 0.5, 1.0], [True, True, False, False]),
    ],
)
def test_weights_of_tokens_turns_and_episodes_by_hand(unit, cap, weights, capped):
    found, over = importance_weights(OLD, SAMPLER, cap, unit)
    np.testing.assert_allclose(found, weights, rtol=1e-6)
    assert over.tolist() == capped


@pytest.mark.parametrize(
    ("unit", "cap", "more", "weights", "outside"),
    [
        (None, 2.0, {"mask": True}, [1.5, 0.0, 0.5, 1.0], [0, 1, 0, 0]),
        (None, 2.0, {"floor": 0.6}, [1.5, 2.0, 0.6, 1.0], [0, 1, 1, 0]),
        (None, 2.0, {"floor": 0.6, "mask": True}, [1.5, 0.0, 0.0, 1.0], [0, 1, 1, 0]),
        (TURN, 2.0, {"mask": True}, [0.0, 0.0, 0.5, 1.0], [1, 1, 0, 0]),  # 1.5 * 4
        (EPISODE, 2.0, {"mask": True}, [0.0, 0.0, 0.0, 1.0], [1, 1, 1, 0]),  # 1.5 * 4 * 0.5
        (EPISODE, 3.5, {"mask": True, "floor": 2.0}, [3.0, 3.0, 3.0, 0.0], [0, 0, 0, 1]),
        # Weights of just the bounds are inside.
        (None, 1.0, {"mask": True, "floor": 0.5}, [0.0, 0.0, 0.5, 1.0], [1, 1, 0, 0]),
    ],
)
def test_weights_outside_the_bounds_are_masked_or_raised_by_hand(unit, cap, more, weights, outside):
    # IcePop masks tokens, TRL's sequence_mask whole sequences.
    found, over = importance_weights(
        torch.log(torch.tensor([1.5, 4, 0.5, 1])), ZERO, cap, unit, **more
    )
    np.testing.assert_allclose(found, weights, rtol=1e-6)
    assert over.tolist() == outside


def test_weights_have_no_gradient_and_stay_finite():
    old = torch.tensor([0.0, -500.0], requires_grad=True)
    found, _ = importance_weights(old, torch.tensor([-500.0, 0.0]), 2.0)
    assert not found.requires_grad
    assert found[0] == 2.0 and 0.0 < found[1] < 1e-8
    far, _ = importance_weights(old.detach(), torch.tensor([-500.0, 0.0]), 1e30)
    torch.testing.assert_close(far, torch.tensor([20.0, -20.0]).exp())


def test_columns_of_unequal_length_are_refused():
    with pytest.raises(CreditInputError, match="expected flat columns of equal length"):
        importance_weights(OLD, SAMPLER[:2], 2.0)
    with pytest.raises(CreditInputError, match=r"shapes \(4,\), \(4,\), \(2,\)"):
        importance_weights(OLD, SAMPLER, 2.0, TURN[:2])


def loss_of(cfg: PolicyLossConfig, sampler: torch.Tensor):
    """Loss, gradient and metrics where the policy stands at the start of the update."""
    logprob = OLD.clone().requires_grad_()
    advantage = torch.tensor([1.0, -1.0, 2.0, 0.5])
    loss, metrics = policy_loss(
        logprob, OLD, advantage, TURN, EPISODE, cfg, sampler_logprob_M=sampler
    )
    loss.backward()
    return loss.item(), logprob.grad, mean_metrics(metrics)


@pytest.mark.parametrize(
    ("unit", "weights"),
    [
        (None, [1.5, 2.0, 0.5, 1.0]),
        ("token", [1.5, 2.0, 0.5, 1.0]),
        ("turn", [2.0, 2.0, 0.5, 1.0]),
        ("sequence", [2.0, 2.0, 2.0, 1.0]),
    ],
)
@pytest.mark.parametrize("ratio", ["token", "none"])
def test_the_gradient_with_a_deviating_sampler_by_hand(ratio, unit, weights):
    cfg = PolicyLossConfig(ratio=ratio, sampler_cap=2.0, sampler_unit=unit)
    loss, grad, metrics = loss_of(cfg, SAMPLER)
    if ratio == "token":
        assert loss == pytest.approx(-np.mean(np.array(weights) * [1.0, -1.0, 2.0, 0.5]))
    # Ratios are 1, so the gradient of token m is -w_m A_m / 4.
    expected = -np.array(weights) * [1.0, -1.0, 2.0, 0.5] / 4
    np.testing.assert_allclose(grad, expected, rtol=1e-6)
    assert metrics["sampler_weight"] == pytest.approx(np.mean(weights))
    assert metrics["sampler_capped"] == np.mean(np.array(weights) == 2.0)
    # The mean of e^d - 1 - d over d = log of 1.5, 4, 0.5 and 1.
    kl = (0.5 - math.log(1.5) + 3 - math.log(4) - 0.5 - math.log(0.5)) / 4
    assert metrics["sampler_kl"] == pytest.approx(kl, rel=1e-5)


def test_masked_tokens_have_no_gradient_and_still_count_in_the_mean():
    # Weights 1.5, 4, 0.5 and 1, from 0.6 to 2: the first and the last stay, over 4 tokens.
    cfg = PolicyLossConfig(sampler_cap=2.0, sampler_mode="mask", sampler_floor=0.6)
    loss, grad, metrics = loss_of(cfg, SAMPLER)
    np.testing.assert_allclose(grad, np.array([-1.5, 0, 0, -0.5]) / 4, rtol=1e-6)
    assert loss == pytest.approx(-2 / 4)
    assert metrics["sampler_capped"] == 0.5 and metrics["sampler_weight"] == pytest.approx(2.5 / 4)
    # Truncated, the third weight is 0.6.
    cfg = PolicyLossConfig(sampler_cap=2.0, sampler_floor=0.6)
    np.testing.assert_allclose(
        loss_of(cfg, SAMPLER)[1], np.array([-1.5, 2, -1.2, -0.5]) / 4, rtol=1e-6
    )


@pytest.mark.parametrize("unit", ["token", "turn", "sequence"])
def test_with_equal_log_probabilities_nothing_changes(unit):
    plain = loss_of(PolicyLossConfig(), OLD)
    weighed = loss_of(PolicyLossConfig(sampler_cap=2.0, sampler_unit=unit), OLD)
    assert weighed[0] == plain[0]
    assert torch.equal(weighed[1], plain[1])
    assert weighed[2]["sampler_weight"] == 1.0
    assert weighed[2]["sampler_capped"] == weighed[2]["sampler_kl"] == 0.0
    # A cap of 0 is no correction.
    assert loss_of(PolicyLossConfig(sampler_cap=0, sampler_unit=unit), SAMPLER)[0] == plain[0]
