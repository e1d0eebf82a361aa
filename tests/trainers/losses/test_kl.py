from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from creditrl.errors import ConfigError  # noqa: E402
from creditrl.trainers.losses.kl import kl_estimate  # noqa: E402


@pytest.mark.parametrize(
    ("kind", "kl"),
    # d = log pi - log pi_ref = -1 + 3 = 2, and -2.
    [
        ("k1", [2.0, -2.0]),
        ("k2", [2.0, 2.0]),
        ("k3", [math.exp(-2) + 1, math.exp(2) - 3]),
        ("abs", [2.0, 2.0]),
    ],
)
def test_kl_by_hand(kind, kl):
    logprob = torch.tensor([-1.0, -3.0], requires_grad=True)
    found = kl_estimate(logprob, torch.tensor([-3.0, -1.0]), kind)
    assert found.tolist() == pytest.approx(kl)
    if kind == "abs":  # pulls alike at any distance
        assert torch.autograd.grad(found.sum(), logprob)[0].tolist() == [1.0, -1.0]


def test_equal_policies_have_no_divergence():
    logprob = torch.linspace(-9, 0, 20)
    for kind in ("k1", "k2", "k3", "abs"):
        assert (kl_estimate(logprob, logprob.clone(), kind) == 0).all()
    with pytest.raises(ConfigError, match="k4"):
        kl_estimate(logprob, logprob, "k4")


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_k1_and_k3_average_to_the_kl(kind):
    # Enumerated: three tokens, weighted by the policy's own probabilities.
    pi, ref = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.4, 0.4, 0.2])
    exact = (pi * (pi / ref).log()).sum().item()
    assert (pi * kl_estimate(pi.log(), ref.log(), kind)).sum().item() == pytest.approx(exact)


def test_gradients_of_k1_average_to_zero_and_those_of_k2_to_the_kl_s():
    logits = torch.tensor([0.3, -0.2, 0.5], requires_grad=True)
    ref = torch.tensor([0.4, 0.4, 0.2]).log()

    def gradient(kind):
        logprob = logits.log_softmax(0)
        expected = (logprob.exp().detach() * kl_estimate(logprob, ref, kind)).sum()
        return torch.autograd.grad(expected, logits)[0]

    logprob = logits.log_softmax(0)
    truth = torch.autograd.grad((logprob.exp() * (logprob - ref)).sum(), logits)[0]
    torch.testing.assert_close(gradient("k1"), torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(gradient("k2"), truth)


def test_extremes_are_clamped_and_half_precision_is_promoted():
    kl = kl_estimate(torch.tensor([-1e4, 0.0], dtype=torch.bfloat16), torch.tensor([0.0, -1e4]))
    assert kl.tolist() == [10.0, 10.0] and kl.dtype == torch.float32


def test_beyond_the_limit_the_gradient_is_zero_and_not_nan():
    logprob = torch.tensor([-500.0, 0.0, -1.0], requires_grad=True)
    ref = torch.tensor([0.0, -500.0, -2.0], requires_grad=True)
    for kind in ("k1", "k2", "k3", "abs"):
        slope = torch.autograd.grad(kl_estimate(logprob, ref, kind).sum(), logprob)[0]
        assert slope[:2].tolist() == [0, 0] and slope[2] > 0
    assert not kl_estimate(logprob.detach(), ref).requires_grad
    # The log-ratio is clamped at 20 whatever bounds the estimate.
    assert kl_estimate(logprob, ref, "k1", limit=99)[:2].tolist() == [-20, 20]
