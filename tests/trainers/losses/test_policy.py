from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from creditrl.errors import ConfigError, CreditInputError  # noqa: E402
from creditrl.trainers.losses.aggregate import aggregation_weights  # noqa: E402
from creditrl.trainers.losses.columns import numpy_column  # noqa: E402
from creditrl.trainers.losses.config import PolicyLossConfig  # noqa: E402
from creditrl.trainers.losses.metrics import add_metrics, mean_metrics  # noqa: E402
from creditrl.trainers.losses.policy import policy_loss  # noqa: E402

# Episode 0: turn 0 of 2 tokens, turn 1 of 1. Episode 1: turn 2 of 3 tokens.
TURN_M = np.array([0, 0, 1, 2, 2, 2])
EPISODE_M = np.array([0, 0, 0, 1, 1, 1])

CONFIGS = {
    "ppo": PolicyLossConfig(),
    "dapo": PolicyLossConfig(clip_low=0.2, clip_high=0.28),
    "dual": PolicyLossConfig(dual_clip=3.0),
    "turn mean": PolicyLossConfig(ratio="turn", aggregate="turn-mean"),
    "turn sum": PolicyLossConfig(ratio="turn", token_reduce="sum", aggregate="turn-mean"),
    "gspo": PolicyLossConfig(ratio="sequence", aggregate="seq-mean-token-mean"),
    "cispo": PolicyLossConfig(clip_on="weight", clip_high=0.2),
    "cispo of turns": PolicyLossConfig(
        ratio="turn", token_reduce="sum", clip_on="weight", aggregate="turn-mean"
    ),
    "sapo": PolicyLossConfig(clip_on="soft", aggregate="seq-mean-token-mean"),
    "gmpo": PolicyLossConfig(
        clip_on="token", ratio="sequence", clip_low=0.1, aggregate="seq-mean-token-mean"
    ),
    "luspo": PolicyLossConfig(ratio="sequence", aggregate="seq-mean-token-sum"),
    "dppo tv": PolicyLossConfig(clip_on="tv", clip_low=0.05, clip_high=0.05),
    "dppo kl": PolicyLossConfig(clip_on="kl", clip_low=0.01),
    "dr_grpo": PolicyLossConfig(aggregate="seq-mean-token-sum", length_divisor=16),
    "reinforce": PolicyLossConfig(ratio="none", aggregate="seq-mean-token-sum"),
    "everything": PolicyLossConfig(
        kl_coef=0.1, entropy_coef=0.01, entropy_reduce="turn", sampler_cap=2.0
    ),
}


def by_ratio(ratios, advantages, cfg, turn=None, episode=None, old=-1.0, **more):
    """Policy loss and gradient of tokens with given ratios to the old policy."""
    old_M = torch.full((len(ratios),), old)
    logprob = (torch.tensor(ratios, dtype=torch.float32).log() + old_M).requires_grad_()
    n = len(ratios)
    turn = np.zeros(n, int) if turn is None else np.asarray(turn)
    episode = np.zeros(n, int) if episode is None else np.asarray(episode)
    loss, metrics = policy_loss(
        logprob, old_M, torch.tensor(advantages, dtype=torch.float32), turn, episode, cfg, **more
    )
    loss.backward()
    return loss.item(), logprob.grad, mean_metrics(metrics)


def random_batch(tokens_of_turns, seed, spread=0.3):
    rng = np.random.default_rng(seed)
    tokens_N = np.concatenate([np.array(t) for t in tokens_of_turns])
    episode_N = np.repeat(np.arange(len(tokens_of_turns)), [len(t) for t in tokens_of_turns])
    turn_M = np.repeat(np.arange(len(tokens_N)), tokens_N)
    m = len(turn_M)
    old = -rng.exponential(size=m)
    columns = {
        "old_logprob_M": old,
        "advantage_M": rng.normal(size=len(tokens_N))[turn_M],
        "turn_M": turn_M,
        "episode_M": episode_N[turn_M],
        "ref_logprob_M": old + spread * rng.normal(size=m),
        "sampler_logprob_M": old + spread * rng.normal(size=m),
    }
    logprob = torch.tensor(old + spread * rng.normal(size=m), dtype=torch.float32)
    entropy = torch.tensor(rng.exponential(size=m), dtype=torch.float32)
    return logprob.requires_grad_(), entropy.requires_grad_(), columns


def test_ppo_clip_by_hand():
    # Ratios 1.5, 1.5, 0.5, 0.5 with advantages 1, -1, 1, -1, clip 0.2:
    # -min(1.5, 1.2) = -1.2 (clipped); -min(-1.5, -1.2) = 1.5; -min(.5, .8) = -.5;
    # -min(-.5, -.8) = .8 (clipped). Mean 0.15. Gradient by log pi: -A ratio / 4 unless clipped.
    loss, gradient, metrics = by_ratio([1.5, 1.5, 0.5, 0.5], [1, -1, 1, -1], PolicyLossConfig())
    assert loss == pytest.approx(0.15)
    torch.testing.assert_close(gradient, torch.tensor([0, 1.5, -0.5, 0]) / 4)
    assert metrics["clip_fraction"] == 0.5
    assert metrics["clipped_low"] == metrics["clipped_high"] == 0.25
    assert metrics["ratio"] == pytest.approx(1.0) and metrics["ratio_max"] == pytest.approx(1.5)
    # k3 to the old policy: ratio - 1 - log ratio.
    k3 = np.mean([0.5 - math.log(1.5)] * 2 + [-0.5 - math.log(0.5)] * 2)
    assert metrics["old_kl"] == pytest.approx(k3)
    # Log-ratios are clamped at 20 there, too.
    for ratio, d in ((math.exp(30), 20), (math.exp(-30), -20), (3.0, math.log(3))):
        *_, metrics = by_ratio([ratio], [1], PolicyLossConfig())
        assert metrics["old_kl"] == pytest.approx(math.expm1(d) - d, rel=1e-5)


@pytest.mark.parametrize(
    ("fields", "expected", "slope"),
    [
        # At 1.25 DAPO's range 0.8 to 1.28 still learns where 0.8 to 1.2 does not.
        ({"clip_high": 0.28}, -1.25, -1.25),
        ({}, -1.2, 0),
        ({"clip": False}, -1.25, -1.25),
    ],
)
def test_asymmetric_clip_by_hand(fields, expected, slope):
    loss, gradient, metrics = by_ratio([1.25], [1], PolicyLossConfig(**fields))
    assert loss == pytest.approx(expected) and gradient.item() == pytest.approx(slope)
    assert ("clip_fraction" in metrics) == fields.get("clip", True)


def test_dual_clip_by_hand():
    # A = -2 at ratio 5: unclipped loss 10, bound c A = 6, no gradient. At ratio 2: 4, untouched.
    # A positive advantage is not bounded from that side.
    cfg = PolicyLossConfig(dual_clip=3.0)
    loss, gradient, metrics = by_ratio([5], [-2], cfg)
    assert loss == pytest.approx(6) and gradient.item() == 0
    assert metrics["clipped_dual"] == 1
    loss, gradient, metrics = by_ratio([2], [-2], cfg)
    assert loss == pytest.approx(4) and gradient.item() == pytest.approx(4)
    assert metrics["clipped_dual"] == 0
    assert by_ratio([0.5], [0.5], cfg)[0] == pytest.approx(-0.25)


def test_clip_metrics_at_the_bounds():
    # Just on the border 1/2 or 2 nothing is clipped, and zero advantages never are.
    cfg = PolicyLossConfig(clip_low=0.5, clip_high=1.0, dual_clip=2.0)
    border, advantages = [0.5, 2.0, 0.5, 2.0], [-1, 1, -0.5, -1]
    *_, metrics = by_ratio(border, advantages, cfg, old=0.0)
    assert [metrics[f"clipped_{side}"] for side in ("low", "high", "dual")] == [0, 0, 0]
    *_, metrics = by_ratio([0.1, 9.0, 0.1, 9.0], [0, 0, 0.5, 0.5], cfg)
    assert [metrics[f"clipped_{side}"] for side in ("low", "high", "dual")] == [0, 0.25, 0]
    cispo = PolicyLossConfig(clip_on="weight", clip_low=0.5, clip_high=1.0)
    *_, metrics = by_ratio(border, advantages, cispo, old=0.0)
    assert metrics["clip_fraction"] == 0
    # A turn of two tokens has one ratio: 0.4, 4, 16 with bound 3, and 1.
    turns = {"turn": [0, 0, 1, 1, 2, 2, 3, 3], "episode": [0] * 8}
    ratios, advantages = [0.2, 2, 2, 2, 4, 4, 1, 1], [-1, -1, 1, 1, -1, -1, 1, 1]
    cfg = PolicyLossConfig(ratio="turn", token_reduce="sum", dual_clip=3.0)
    *_, metrics = by_ratio(ratios, advantages, cfg, **turns)
    assert [metrics[f"clipped_{side}"] for side in ("low", "high", "dual")] == [0.25] * 3
    assert metrics["ratio"] == pytest.approx((0.4 + 4 + 16 + 1) / 4)
    cispo = PolicyLossConfig(ratio="turn", token_reduce="sum", clip_on="weight", clip_low=0.2)
    *_, metrics = by_ratio(ratios, advantages, cispo, **turns)
    assert (metrics["clipped_low"], metrics["clipped_high"]) == (0.25, 0.25)


def test_metric_sums_are_constants_and_count_units_with_a_ratio():
    for name, cfg in CONFIGS.items():
        logprob, entropy, columns = random_batch([[2, 1], [3]], 7)
        loss, metrics = policy_loss(logprob, cfg=cfg, entropy_M=entropy, **columns)
        assert not any(value.requires_grad for value in metrics.values())
        units = {"turn": 3, "sequence": 2}.get(cfg.ratio, 6)
        assert (metrics["tokens"], metrics["units"], metrics["turns"]) == (6, units, 3), name
        assert metrics["loss"] == loss.detach()
        parts = [metrics[part] for part in metrics if part.startswith("loss_")]
        assert sum(parts).item() == pytest.approx(loss.item(), abs=1e-6)
        assert len(parts) == (3 if name == "everything" else 1)


def test_cispo_by_hand():
    # Weights of ratios 4, 1.1 and 0.5 in [0.8, 1.2]: 1.2, 1.1, 0.8. Every token keeps a gradient,
    # -w A / 3, whatever the sign of A; the loss is that times log pi.
    cfg = PolicyLossConfig(clip_on="weight", clip_low=0.2, clip_high=0.2)
    ratios, advantages = [4.0, 1.1, 0.5], [1, -2, 3]
    loss, gradient, metrics = by_ratio(ratios, advantages, cfg)
    slopes = np.array([-1.2 * 1, 1.1 * 2, -0.8 * 3]) / 3
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6)
    assert loss == pytest.approx((slopes * (np.log(ratios) - 1)).sum())
    assert metrics["clipped_low"] == metrics["clipped_high"] == pytest.approx(1 / 3)
    # Without numbers of one's own: no lower bound, at most 5.
    _, gradient, metrics = by_ratio([7.0, 4.0, 1e-3], [1, 1, 1], PolicyLossConfig(clip_on="weight"))
    np.testing.assert_allclose(gradient, np.array([-5, -4, -1e-3]) / 3, rtol=1e-5)
    assert metrics["clipped_low"] == 0


def test_cispo_with_turn_ratios_weights_all_tokens_of_a_turn_equally():
    # Ratios 2 and 1.5 of one turn: 3 for both, within [0, 5]; 8 and 2: 16, so 5.
    cfg = PolicyLossConfig(ratio="turn", token_reduce="sum", clip_on="weight")
    for ratios, weight in (([2.0, 1.5], 3.0), ([8.0, 2.0], 5.0)):
        _, gradient, _ = by_ratio(ratios, [1, -1], cfg)
        np.testing.assert_allclose(gradient, [-weight / 2, weight / 2], rtol=1e-5)


def test_sapo_by_hand():
    # Gates 4 sigmoid(0) = 2 and 4 sigmoid(1) where A > 0, and 2 sigmoid(-1) at temperature 2, where
    # it is not. Their slopes by the ratio are 4 s (1 - s): 1, 0.78645 and again 0.78645.
    cfg = PolicyLossConfig(clip_on="soft", tau_neg=2.0)
    loss, gradient, metrics = by_ratio([1.0, 2.0, 0.5], [1, 1, -1], cfg)
    s = 1 / (1 + math.exp(-1))
    assert loss == pytest.approx((-2 - 4 * s + 2 * (1 - s)) / 3)
    slope = 4 * s * (1 - s)
    np.testing.assert_allclose(gradient, np.array([-1, -2 * slope, 0.5 * slope]) / 3, rtol=1e-5)
    assert slope == pytest.approx(0.78645, abs=1e-5)
    assert "clip_fraction" not in metrics and metrics["ratio"] == pytest.approx(3.5 / 3)
    # The paper's temperatures; an advantage of 0 has the negative one, and no loss.
    for advantage, tau in ((1.0, 1.0), (-1.0, 1.05)):
        loss, *_ = by_ratio([2.0], [advantage], PolicyLossConfig(clip_on="soft"))
        assert loss == pytest.approx(-advantage * 4 / tau / (1 + math.exp(-tau)))
    cfg = PolicyLossConfig(clip_on="soft", tau_pos=3.0)
    assert by_ratio([2.0], [1], cfg)[0] == pytest.approx(-4 / 3 / (1 + math.exp(-3)))
    assert by_ratio([2.0], [0], cfg)[0] == 0


def test_gmpo_clips_tokens_before_the_mean():
    # Log-ratios 1, 0.2 and -1 of a sequence. A = 1: at most 0.4, so their mean is -0.4 / 3; the
    # clipped one has no gradient. A = -1: at least -0.4, so 0.8 / 3.
    cfg = PolicyLossConfig(clip_on="token", ratio="sequence", aggregate="seq-mean-token-mean")
    ratios = np.exp([1.0, 0.2, -1.0])
    for sign, mean, moves in ((1, -0.4 / 3, [0, 1, 1]), (-1, 0.8 / 3, [1, 1, 0])):
        loss, gradient, metrics = by_ratio(ratios, [sign] * 3, cfg)
        assert loss == pytest.approx(-sign * math.exp(mean), rel=1e-5)
        slopes = -sign * math.exp(mean) / 3 * np.array(moves)
        np.testing.assert_allclose(gradient, slopes, rtol=1e-5)
        assert metrics["clip_fraction"] == pytest.approx(1 / 3)
        assert metrics["clipped_high" if sign > 0 else "clipped_low"] > 0
        assert metrics["ratio"] == pytest.approx(math.exp(mean), rel=1e-5)
    # Clipping after the mean, 1.07 and so within e^-0.4 to e^0.4, would leave all three a gradient.
    cfg = PolicyLossConfig(ratio="sequence", clip_low=0.4, clip_high=0.4)
    assert (by_ratio(ratios, [1] * 3, cfg)[1] != 0).all()
    # A token whose turn has no credit counts with at most the same bound.
    cfg = PolicyLossConfig(clip_on="token", ratio="sequence", aggregate="seq-mean-token-mean")
    loss, *_ = by_ratio(np.exp([1.0, 0.0]), [0, 1], cfg, turn=[0, 1])
    assert loss == pytest.approx(-math.exp(0.2) / 2, rel=1e-5)


def test_luspo_is_a_sequence_ratio_summed_over_tokens():
    # Sequences of 2 tokens with ratio 4 = (2 * 8)^(1/2), and of 1 with ratio 1: -(2 * 4 + 1) / 2.
    cfg = PolicyLossConfig(ratio="sequence", aggregate="seq-mean-token-sum", clip_high=9.0)
    loss, gradient, _ = by_ratio([2, 8, 1], [1, 1, 1], cfg, turn=[0, 0, 1], episode=[0, 0, 1])
    assert loss == pytest.approx(-4.5)
    np.testing.assert_allclose(gradient, [-2, -2, -0.5], rtol=1e-6)


@pytest.mark.parametrize(
    ("clip_on", "q", "p", "advantage", "slope", "side"),
    [
        # From 0.5 to 0.8 and 0.2: further than 0.2, but only against the advantage is it learned.
        ("tv", 0.5, 0.8, 1, 0, "high"),
        ("tv", 0.5, 0.8, -1, 1.6, None),
        ("tv", 0.5, 0.2, -1, 0, "low"),
        ("tv", 0.5, 0.2, 1, -0.4, None),
        ("tv", 0.5, 0.69, 1, -1.38, None),
        ("tv", 0.5, 0.31, -1, 0.62, None),
        # A rare token, ten times as probable: PPO clips it, the distances are 0.009 and 0.0067.
        ("tv", 0.001, 0.01, 1, -10, None),
        ("kl", 0.001, 0.01, 1, -10, None),
        # 0.5 log(0.5 / p) + 0.5 log(0.5 / (1 - p)): 0.2231, and 0.0487 for 0.65 and 0.35.
        ("kl", 0.5, 0.8, 1, 0, "high"),
        ("kl", 0.5, 0.8, -1, 1.6, None),
        ("kl", 0.5, 0.2, -1, 0, "low"),
        ("kl", 0.5, 0.65, 1, -1.3, None),
        ("kl", 0.5, 0.35, -1, 0.7, None),
        ("kl", 0.5, 0.66, 1, 0, "high"),
        # From 0.01 to 0.08: 0.99 log(0.99 / 0.92) - 0.01 log 8 = 0.0518.
        ("kl", 0.01, 0.08, 1, 0, "high"),
        ("kl", 0.01, 0.078, 1, -7.8, None),
    ],
)
def test_dppo_masks_by_the_distance_of_probabilities(clip_on, q, p, advantage, slope, side):
    cfg = PolicyLossConfig(clip_on=clip_on)
    loss, gradient, metrics = by_ratio([p / q], [advantage], cfg, old=math.log(q))
    assert gradient.item() == pytest.approx(slope, rel=1e-4)
    assert loss == pytest.approx(slope, rel=1e-4)  # the loss is A times the ratio, or 0
    assert metrics["clipped_high"] == (side == "high") and metrics["clipped_low"] == (side == "low")


def test_dppo_at_its_bounds_and_at_certainty():
    # Exactly 1/4 away is not masked, nor is a token without credit.
    cfg = PolicyLossConfig(clip_on="tv", clip_low=0.25, clip_high=0.25)
    for ratio, advantage in ((1.5, 1), (0.5, -1), (2.0, 0), (0.125, 0)):
        *_, metrics = by_ratio([ratio], [advantage], cfg, old=math.log(0.5))
        assert metrics["clip_fraction"] == 0
    # Probabilities that round to 1 have a finite distance.
    cfg = PolicyLossConfig(clip_on="kl")
    for old in (0.0, -1e-9, -0.5):
        loss, gradient, metrics = by_ratio([math.exp(-old)], [1], cfg, old=old)
        assert math.isfinite(loss) and metrics["clip_fraction"] == (old == -0.5)
    _, gradient, metrics = by_ratio([0.5], [-1], PolicyLossConfig(clip_on="kl"), old=0.0)
    assert gradient.item() == 0 and metrics["clipped_low"] == 1  # log 2, from a certain token
    # 1 - p is 1e-8 there: 0.5 log(1 / 2) + 0.5 log(0.5 / 1e-8) = 8.5173.
    for high, clipped in ((8.51, 1), (8.53, 0)):
        cfg = PolicyLossConfig(clip_on="kl", clip_high=high)
        *_, metrics = by_ratio([2.0], [1], cfg, old=math.log(0.5))
        assert metrics["clipped_high"] == clipped


# Eight tokens, and what prime-rl's and SkyRL's own functions return for them.
Q = [-0.1, -0.5, -1.0, -2.0, -0.2, -3.0, -0.7, -0.05]
P = [-0.02, -0.1, -1.6, -1.9, -0.6, -0.9, -0.75, -0.4]
CREDIT = [1.0, 1.0, 1.0, -0.5, -0.5, -0.5, 2.0, -2.0]


@pytest.mark.parametrize(
    ("fields", "loss", "gradient"),
    [
        # prime-rl 559b4477, default_loss_fn, masks 0.2, kl_tau 0; SkyRL a9564572, binary_tv, 0.2.
        (
            {"clip_on": "tv"},
            0.1376390904,
            [-0.13541089, 0, -0.06860145, 0.06907319, 0, 0.51038557, -0.23780735, 0],
        ),
        # prime-rl with its kl_tau of 1e-3: squares of log-ratios, which k2 halves.
        (
            {"clip_on": "tv", "kl_coef": 2e-3, "kl_kind": "k2"},
            0.1382929683,
            [
                *(-0.13539089, 0.00010000, -0.06875145, 0.06909818),
                *(-0.00010000, 0.51091057, -0.23781985, -0.0000875),
            ],
        ),
        # SkyRL, binary_kl, 0.05.
        (
            {"clip_on": "kl"},
            0.2730499506,
            [0, 0, -0.06860145, 0.06907319, 0, 0.51038557, -0.23780735, 0],
        ),
    ],
)
def test_dppo_has_prime_rls_and_skyrls_value_and_gradient(fields, loss, gradient):
    logprob = torch.tensor(P, requires_grad=True)
    zero = np.zeros(8, int)
    old = torch.tensor(Q)
    cfg = PolicyLossConfig(**fields)
    found, _ = policy_loss(
        logprob, old, np.array(CREDIT), zero, zero, cfg, ref_logprob_M=old if cfg.kl_coef else None
    )
    found.backward()
    assert found.item() == pytest.approx(loss, rel=1e-6)
    np.testing.assert_allclose(logprob.grad, gradient, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("settings", "logprob", "advantage", "index", "expected", "slope"),
    [
        # -(1 * -1 + 2 * -3) / 2 = 3.5, without any old policy.
        ({}, [-1.0, -3.0], [1, 2], ([0, 1], [0, 0]), 3.5, [-0.5, -1.0]),
        # Episodes of 3 tokens: 6 tokens / (2 episodes * 12) = 1/4.
        (
            {"aggregate": "seq-mean-token-sum", "length_divisor": 12},
            *([-1.0] * 6, [1] * 6, (TURN_M, EPISODE_M), 0.25, [-1 / 24] * 6),
        ),
    ],
)
def test_plain_policy_gradient_by_hand(settings, logprob, advantage, index, expected, slope):
    logprob_M = torch.tensor(logprob, requires_grad=True)
    cfg = PolicyLossConfig(ratio="none", **settings)
    loss, _ = policy_loss(logprob_M, None, advantage, *index, cfg)
    assert loss.item() == pytest.approx(expected)
    loss.backward()
    assert logprob_M.grad.tolist() == pytest.approx(slope)


def test_turn_ratio_by_hand():
    # Turn 0: ratios 2 and 8, geometric mean 4; turn 1: ratio 1. A = 1. No clip: loss per turn -4
    # and -1, their mean -2.5. Gradient of exp(mean d): 4 / 2 per token, halved over two turns.
    cfg = PolicyLossConfig(ratio="turn", aggregate="turn-mean", clip=False)
    loss, gradient, metrics = by_ratio([2, 8, 1], [1, 1, 1], cfg, turn=[0, 0, 1])
    assert loss == pytest.approx(-2.5)
    torch.testing.assert_close(gradient, torch.tensor([-1.0, -1.0, -0.5]))
    assert metrics["ratio"] == pytest.approx(2.5)  # mean over 2 turns, not 3 tokens
    # Sum: the probability ratio of the whole reply, 16; its gradient by each token is 16.
    cfg = PolicyLossConfig(ratio="turn", token_reduce="sum", aggregate="turn-mean", clip=False)
    loss, gradient, _ = by_ratio([2, 8, 1], [1, 1, 1], cfg, turn=[0, 0, 1])
    assert loss == pytest.approx(-8.5)
    torch.testing.assert_close(gradient, torch.tensor([-8.0, -8.0, -0.5]))


def test_sequence_ratio_by_hand_and_its_clip():
    # One sequence with d = (0.002, 0): s = exp(0.001) > 1.0004, so it is clipped for A > 0.
    cfg = PolicyLossConfig(ratio="sequence", aggregate="seq-mean-token-mean")
    ratios = [math.exp(0.002), 1.0]
    loss, gradient, metrics = by_ratio(ratios, [1, 1], cfg)
    assert loss == pytest.approx(-1.0004, abs=1e-6) and gradient.tolist() == [0, 0]
    assert metrics["clip_fraction"] == 1
    loss, gradient, _ = by_ratio(ratios, [-1, -1], cfg)
    assert loss == pytest.approx(math.exp(0.001), abs=1e-6)
    torch.testing.assert_close(gradient, torch.full((2,), math.exp(0.001) / 2))


@pytest.mark.parametrize("name", ["turn mean", "turn sum", "gspo", "luspo", "gmpo"])
@given(
    tokens=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=10)
def test_the_token_form_has_the_value_and_gradient_of_the_direct_form(name, tokens, seed):
    # GSPO eq. 13-14: with equal advantages and weights in a unit, the stop-gradient form is the
    # direct one.
    cfg = CONFIGS[name]
    logprob, _, columns = random_batch(tokens, seed, spread=1e-3 if cfg.mean_ratio else 0.3)
    unit_M = columns["turn_M"] if cfg.ratio == "turn" else columns["episode_M"]
    columns["advantage_M"] = np.random.default_rng(seed).normal(size=99)[unit_M]
    weight_M = aggregation_weights(cfg.aggregate, columns["turn_M"], columns["episode_M"])
    loss, _ = policy_loss(
        logprob, *(columns[c] for c in ("old_logprob_M", "advantage_M", "turn_M", "episode_M")), cfg
    )
    gradient = torch.autograd.grad(loss, logprob)[0]

    direct = torch.zeros(())
    for u in np.unique(unit_M):
        rows = np.flatnonzero(unit_M == u)
        d = logprob[rows] - torch.tensor(columns["old_logprob_M"][rows], dtype=torch.float32)
        ratio = torch.exp(d.sum() if name == "turn sum" else d.mean())
        a = float(columns["advantage_M"][rows[0]])
        if name == "gmpo":
            least, most = cfg.bounds
            objective = a * torch.exp((d.clamp(max=most) if a > 0 else d.clamp(min=-least)).mean())
        else:
            low, high = cfg.clip_range
            objective = torch.minimum(ratio * a, ratio.clamp(low, high) * a)
        direct = direct - float(weight_M[rows].sum()) * objective
    assert loss.item() == pytest.approx(direct.item(), rel=1e-4, abs=1e-6)
    torch.testing.assert_close(
        gradient, torch.autograd.grad(direct, logprob)[0], rtol=1e-3, atol=1e-6
    )


@pytest.mark.parametrize(
    ("unit", "slopes"), [("token", [-0.75, -0.25]), ("sequence", [-0.375, -0.375])]
)
def test_with_a_sequence_ratio_a_sampler_weight_per_token_stays_on_its_token(unit, slopes):
    # Weights 1.5 and 0.5. The direct form would hand both tokens their mean, 1; the sequence's own
    # weight is 1.5 * 0.5.
    cfg = PolicyLossConfig(ratio="sequence", sampler_cap=2.0, sampler_unit=unit)
    sampler = -1 - torch.tensor([1.5, 0.5]).log()
    _, gradient, _ = by_ratio([1, 1], [1, 1], cfg, sampler_logprob_M=sampler)
    torch.testing.assert_close(gradient, torch.tensor(slopes))


def test_with_a_sequence_ratio_each_turn_keeps_its_own_credit():
    # The direct form would hand both tokens the mean of the two advantages, 0.
    cfg = PolicyLossConfig(ratio="sequence", aggregate="seq-mean-token-mean")
    _, gradient, _ = by_ratio([1, 1], [1, -1], cfg, turn=[0, 1])
    torch.testing.assert_close(gradient, torch.tensor([-0.5, 0.5]))


@pytest.mark.parametrize("name", CONFIGS)
@given(
    tokens=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=2, max_size=6),
    cuts=st.integers(0, 2**32 - 1),
)
@settings(max_examples=6)
def test_gradients_of_micro_batches_add_up_to_the_whole_in_any_order(name, tokens, cuts):
    cfg = CONFIGS[name]
    logprob, entropy, columns = random_batch(tokens, cuts)
    weight_M = aggregation_weights(cfg.aggregate, columns["turn_M"], columns["episode_M"])

    def run(rows):
        parts = {name: column[rows] for name, column in columns.items()}
        return policy_loss(
            logprob[rows], cfg=cfg, weight_M=weight_M[rows], entropy_M=entropy[rows], **parts
        )

    loss, metrics = run(slice(None))
    whole = torch.autograd.grad(loss, [logprob, entropy], allow_unused=True)
    # Whole episodes go to micro-batches at random; for token ratios, whole turns would do, too.
    rng = np.random.default_rng(cuts)
    part_of_episode = rng.integers(0, 3, size=len(tokens))
    sums = []
    for part in range(3):
        chosen = np.flatnonzero(part_of_episode[columns["episode_M"]] == part)
        loss, part_metrics = run(rng.permutation(chosen))
        loss.backward()
        sums.append(part_metrics)
    torch.testing.assert_close(logprob.grad, whole[0], rtol=1e-5, atol=1e-7)
    if cfg.entropy_coef:
        torch.testing.assert_close(entropy.grad, whole[1])
    total = mean_metrics(add_metrics(sums))
    assert total == pytest.approx(mean_metrics(metrics), rel=1e-4, abs=1e-6)


def test_kl_and_entropy_terms_by_hand():
    # Zero advantages leave 0.1 * mean k3 - 0.01 * entropy. d = 2 and 0: k3 = e^-2 + 1 and 0.
    logprob = torch.tensor([-1.0, -1.0])
    args = (logprob, logprob, np.zeros(2), np.array([0, 0]), np.array([0, 0]))
    columns = {"ref_logprob_M": np.array([-3.0, -1.0]), "entropy_M": torch.tensor([0.5, 1.0])}
    k3 = (math.exp(-2) + 1) / 2
    for reduce, bonus in (("token", 0.75), ("turn", 1.5)):  # mean over tokens; sum over the turn
        cfg = PolicyLossConfig(kl_coef=0.1, entropy_coef=0.01, entropy_reduce=reduce)
        loss, metrics = policy_loss(*args, cfg, **columns)
        assert loss.item() == pytest.approx(0.1 * k3 - 0.01 * bonus)
    means = mean_metrics(metrics)
    assert means["ref_kl"] == pytest.approx(k3)
    assert means["entropy"] == 0.75 and means["entropy_per_turn"] == 1.5


def test_without_a_cap_the_sampler_gap_is_only_reported():
    # Trainer and sampler differ by factors 1.5 and 4.
    old = torch.tensor([-1.0, -1.0])
    sampler = old - torch.tensor([1.5, 4.0]).log()
    args = (old.clone(), old, np.array([1, 1]), np.array([0, 1]), np.array([0, 0]))
    loss, metrics = policy_loss(*args, PolicyLossConfig(), sampler_logprob_M=sampler)
    assert loss.item() == pytest.approx(-1)
    means = mean_metrics(metrics)
    assert means["sampler_gap_max"] == pytest.approx(math.log(4))
    assert means["sampler_gap"] == pytest.approx((math.log(1.5) + math.log(4)) / 2)
    # Gaps count by their size, and are clamped at 20.
    for d in (30.0, -30.0):
        _, metrics = policy_loss(*args, PolicyLossConfig(), sampler_logprob_M=old - d)
        means = mean_metrics(metrics)
        assert means["sampler_gap"] == means["sampler_gap_max"] == 20
        clamped = math.copysign(20, d)
        assert means["sampler_kl"] == pytest.approx(math.expm1(clamped) - clamped, rel=1e-5)


def test_a_sampler_without_an_old_policy_is_not_corrected_for():
    one, index = torch.full((1,), -1.0), np.zeros(1, int)
    loss, metrics = policy_loss(
        one, None, one, index, index, PolicyLossConfig(ratio="none"), sampler_logprob_M=one
    )
    assert loss.item() == -1 and "sampler_gap_sum" not in metrics
    cfg = PolicyLossConfig(ratio="none", sampler_cap=2.0)
    with pytest.raises(CreditInputError, match="sampler_logprob_M and old_logprob_M"):
        policy_loss(one, None, one, index, index, cfg, sampler_logprob_M=one)


def test_extreme_log_ratios_stay_finite():
    logprob = torch.tensor([0.0, -500.0], requires_grad=True)
    old = torch.tensor([-500.0, 0.0])
    for cfg in (PolicyLossConfig(clip=False), CONFIGS["turn sum"], CONFIGS["gspo"]):
        for unit in (TURN_M[:2], TURN_M[1:3]):  # opposite log-ratios, within a unit and apart
            loss, _ = policy_loss(logprob, old, np.array([-1, 1]), unit, unit, cfg)
            assert torch.isfinite(loss)
            assert torch.isfinite(torch.autograd.grad(loss, logprob)[0]).all()


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({}, 20),
        ({"ratio": "turn"}, 20),
        ({"ratio": "sequence"}, 10),
        ({"log_ratio_limit": 0.5}, 0.5),
    ],
)
def test_log_ratios_are_clamped(fields, limit):
    cfg = PolicyLossConfig(clip=False, **fields)
    assert cfg.limit == limit
    loss, gradient, _ = by_ratio([math.exp(30)], [-1], cfg)
    assert loss == pytest.approx(math.exp(limit), rel=1e-5) and gradient.item() == 0
    # Also in half precision, where the loss is float32.
    half = torch.tensor([-1.0, -2.0], dtype=torch.bfloat16)
    loss, _ = policy_loss(half, half, np.ones(2), TURN_M[:2], EPISODE_M[:2], cfg)
    assert loss.dtype == torch.float32 and loss.item() == -1.0


def test_no_tokens_give_no_loss():
    empty = torch.zeros(0, requires_grad=True)
    none = np.zeros(0, int)
    for cfg in (CONFIGS["ppo"], CONFIGS["gspo"], CONFIGS["turn sum"]):
        loss, metrics = policy_loss(empty, none, none, none, none, cfg)
        loss.backward()
        assert loss.item() == 0
        assert math.isnan(mean_metrics(metrics)["ratio"])


def test_columns_may_be_tensors_with_a_gradient():
    # Columns that are constants get no gradient, wherever they come from.
    logprob, _, columns = random_batch([[2], [1]], 2)
    tensors = {
        name: torch.tensor(column, dtype=torch.float32, requires_grad=True)
        for name, column in columns.items()
        if name not in ("turn_M", "episode_M")
    }
    tensors |= {name: torch.as_tensor(columns[name]) for name in ("turn_M", "episode_M")}
    loss, _ = policy_loss(logprob, cfg=CONFIGS["everything"], entropy_M=logprob, **tensors)
    loss.backward()
    assert all(tensor.grad is None for tensor in tensors.values())
    assert numpy_column(torch.ones(1, requires_grad=True)).tolist() == [1]


@pytest.mark.parametrize(
    ("column", "value"), [("advantage_M", np.nan), ("old_logprob_M", np.nan), ("logprob_M", np.inf)]
)
def test_nan_names_the_column_and_the_episode(column, value):
    logprob, _, columns = random_batch([[2], [3]], 0)
    if column == "logprob_M":
        logprob = logprob.detach().clone()
        logprob[3] = value
    else:
        columns[column] = columns[column].copy()
        columns[column][3] = value
    args = (columns[c] for c in ("old_logprob_M", "advantage_M", "turn_M", "episode_M"))
    cfg = PolicyLossConfig(ratio="none") if column == "logprob_M" else PolicyLossConfig()
    with pytest.raises(CreditInputError, match=f"{column} is (nan|inf) at token 3, in episode 1"):
        policy_loss(logprob, *args, cfg)


ONE, INDEX = torch.zeros(1), np.zeros(1, int)


@pytest.mark.parametrize(
    ("old", "advantage", "fields", "said"),
    [
        (None, ONE, {}, "old_logprob_M for ratio='token'"),
        (ONE, ONE, {"kl_coef": 0.1}, "ref_logprob_M for kl_coef=0.1"),
        (ONE, ONE, {"entropy_coef": 0.1}, "entropy_M for entropy_coef"),
        (ONE, ONE, {"sampler_cap": 2.0}, "sampler_logprob_M"),
        (None, ONE, {"ratio": "none", "sampler_cap": 2.0}, "sampler_logprob_M and old_logprob_M"),
        (ONE, np.zeros(2), {}, r"advantage_M has shape \(2,\)"),
        # Even if other columns are not given.
        (None, ONE * np.nan, {"ratio": "none"}, "advantage_M is nan at token 0, in episode 0"),
    ],
)
def test_missing_and_mismatched_columns_are_named(old, advantage, fields, said):
    with pytest.raises(CreditInputError, match=said):
        policy_loss(ONE, old, advantage, INDEX, INDEX, PolicyLossConfig(**fields))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"ratio": "sequences"}, "Did you mean 'sequence'"),
        ({"dual_clip": 0.5}, "dual_clip is 0.5: expected more than 1"),
        (
            {"aggregate": "seq-mean-token-sum", "length_divisor": 0},
            "length_divisor is 0: expected more than 0",
        ),
        ({"clip_on": "weights"}, "Did you mean 'weight'"),
        ({"sampler_cap": -1}, "sampler_cap is -1"),
        ({"sampler_unit": "episode"}, "Known: token, turn, sequence"),
        # Settings without effect.
        ({"ratio": "none", "dual_clip": 3.0}, "dual_clip=3.0 has no effect: .* no ratio to bound"),
        ({"ratio": "none", "clip_on": "weight"}, "no effect: .* no ratio to weigh by"),
        ({"clip": False, "clip_on": "weight"}, "no effect: clip=False leaves nothing to clip"),
        ({"clip_on": "weight", "dual_clip": 3.0}, "no effect: .* set clip_high"),
        ({"length_divisor": 9.0}, 'no effect: aggregate="token-mean" is a mean already'),
        ({"ratio": "none", "clip_on": "soft"}, 'clip_on="soft" has no effect: .* to weigh by'),
        ({"clip": False, "clip_on": "soft"}, 'clip_on="soft" has no effect: clip=False leaves'),
        ({"clip_on": "soft", "dual_clip": 3.0}, "dual_clip=3.0 has no effect: .* or tau_neg"),
        ({"clip_on": "token"}, "no effect: .* no mean after the clip"),
        ({"tau_pos": 1.0}, "tau_pos=1.0, tau_neg=None has no effect: .* no temperature"),
        ({"clip_on": "kl", "tau_neg": 1.0}, "tau_pos=None, tau_neg=1.0 has no effect"),
        ({"clip_on": "soft", "tau_pos": 0}, "tau_pos is 0: expected more than 0"),
        ({"clip_on": "tv", "ratio": "sequence"}, 'of tokens, but ratio is "sequence"'),
        ({"clip_on": "kl", "ratio": "turn"}, 'of tokens, but ratio is "turn"'),
        ({"sampler_cap": 0, "sampler_mode": "mask"}, "no effect: sampler_cap=0 turns"),
        ({"sampler_cap": 0, "sampler_floor": 0.5}, "no effect: sampler_cap=0 turns"),
        ({"sampler_cap": 0.5, "sampler_floor": 0.5}, "sampler_floor is 0.5: expected less than"),
        ({"sampler_floor": -0.5}, "sampler_floor is -0.5"),
    ],
)
def test_settings_out_of_range_or_without_effect_are_refused(fields, why):
    with pytest.raises(ConfigError, match=why):
        PolicyLossConfig(**fields)


def test_clip_ranges_follow_the_ratio():
    assert PolicyLossConfig().clip_range == (0.8, 1.2)
    assert PolicyLossConfig(ratio="turn").clip_range == (1 - 3e-4, 1 + 4e-4)
    assert PolicyLossConfig(ratio="turn", token_reduce="sum").clip_range == (0.8, 1.2)
    assert PolicyLossConfig(ratio="sequence", clip_low=0.1).clip_range == (0.9, 1 + 4e-4)
    assert PolicyLossConfig(ratio="none").clip_range is None
    assert PolicyLossConfig(clip=False).clip_range is None
    assert PolicyLossConfig(clip_on="weight").clip_range == (0, 5)
    assert PolicyLossConfig(clip_on="weight", clip_low=0.2, clip_high=1).clip_range == (0.8, 2)
    for clip_on, bounds in (("tv", (0.2, 0.2)), ("kl", (0.05, 0.05)), ("soft", (0.2, 0.2))):
        cfg = PolicyLossConfig(clip_on=clip_on)
        assert cfg.bounds == bounds and cfg.clip_range is None
    cfg = PolicyLossConfig(clip_on="token", ratio="sequence")
    assert cfg.bounds == (0.4, 0.4) and cfg.clip_range is None
    assert PolicyLossConfig(clip_on="kl", clip_low=0.1, clip_high=0.3).bounds == (0.1, 0.3)
    # What a run may set later is no contradiction.
    PolicyLossConfig(sampler_mode="mask", sampler_floor=0.5)
