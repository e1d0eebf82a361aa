"""Losses and group baselines beside verl's and TRL's own functions, on random padded batches.

Both have a row per reply. Their functions get rows of turns, and ours the tokens of those rows.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from creditrl.trainers.credit import (  # noqa: E402
    GroupConfig,
    group_advantage,
    optimal_token_baseline,
    turn_table,
)
from creditrl.trainers.losses.config import PolicyLossConfig  # noqa: E402
from creditrl.trainers.losses.importance import importance_weights  # noqa: E402
from creditrl.trainers.losses.policy import policy_loss  # noqa: E402
from creditrl.types import TokenTable  # noqa: E402

ROWS, LENGTH = 6, 5
SAPO = {"clip_on": "soft", "aggregate": "seq-mean-token-mean"}
GMPO = {"clip_on": "token", "ratio": "sequence", "aggregate": "seq-mean-token-mean"}
GSPO = {"ratio": "sequence", "clip_low": 0.3, "clip_high": 0.4}


def batch(seed: int) -> dict[str, Any]:
    """Replies of 1 to 5 tokens with ratios around 1; one advantage per reply."""
    rng = np.random.default_rng(seed)
    length = rng.integers(1, LENGTH + 1, size=ROWS)
    mask = torch.tensor(np.arange(LENGTH) < length[:, None], dtype=torch.float32)
    old = torch.tensor(-rng.exponential(size=(ROWS, LENGTH)) - 0.01, dtype=torch.float32)
    moved = torch.tensor(0.6 * rng.normal(size=(ROWS, LENGTH)), dtype=torch.float32)
    new = torch.clamp(old + moved, max=-0.001)
    advantage = torch.tensor(rng.normal(size=ROWS), dtype=torch.float32)
    sampler = old + torch.tensor(0.7 * rng.normal(size=(ROWS, LENGTH)), dtype=torch.float32)
    return {"mask": mask, "old": old, "new": new, "advantage": advantage, "sampler": sampler}


def ours(data: dict[str, Any], **fields: Any) -> tuple[float, torch.Tensor]:
    """Our loss of the batch's tokens, and its gradient by the padded log-probabilities."""
    new = data["new"].clone().requires_grad_()
    there = data["mask"].bool()
    row = torch.arange(ROWS)[:, None].expand(ROWS, LENGTH)[there]
    loss, _ = policy_loss(
        new[there], data["old"][there], data["advantage"][row], row, row, PolicyLossConfig(**fields)
    )
    loss.backward()
    return loss.item(), new.grad


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("name", "theirs", "fields"),
    [
        ("sapo", {"tau_pos": 1.5, "tau_neg": 2.0}, {**SAPO, "tau_pos": 1.5, "tau_neg": 2.0}),
        ("sapo", {}, SAPO),
        (
            "geo_mean",
            {"clip_ratio_low": 0.3, "clip_ratio_high": 0.4},
            {**GMPO, "clip_low": 0.3, "clip_high": 0.4},
        ),
        ("dppo_tv", {}, {"clip_on": "tv"}),
        (
            "dppo_tv",
            {"clip_ratio_low": 0.05, "clip_ratio_high": 0.1},
            {"clip_on": "tv", "clip_low": 0.05, "clip_high": 0.1},
        ),
        (
            "dppo_kl",
            {"clip_ratio_low": 0.02, "clip_ratio_high": 0.05},
            {"clip_on": "kl", "clip_low": 0.02},
        ),
        (
            "gspo",
            {"clip_ratio_low": 0.3, "clip_ratio_high": 0.4},
            {**GSPO, "aggregate": "seq-mean-token-mean"},
        ),
    ],
)
@pytest.mark.reference("verl")
def test_losses_have_verls_value_and_gradient(name, theirs, fields, seed):
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.workers.config import ActorConfig

    data = batch(seed)
    # Without verl's truncation of the ratio in DPPO, which ours lacks.
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_c=1e9,
        **theirs,
    )
    mode = "token-mean" if name.startswith("dppo") else "seq-mean-token-mean"
    new = data["new"].clone().requires_grad_()
    wide = data["advantage"][:, None].expand(ROWS, LENGTH)
    value, _ = get_policy_loss_fn(name)(data["old"], new, wide, data["mask"], mode, config)
    value.backward()
    found, gradient = ours(data, **fields)
    if not name.startswith("dppo"):
        assert found == pytest.approx(value.item(), rel=1e-5, abs=1e-6)
    # verl's DPPO has another value with the same gradient: a constant ratio times log pi.
    torch.testing.assert_close(gradient, new.grad * data["mask"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("loss_type", "level", "fields"),
    [
        ("sapo", "token", SAPO),
        ("sapo", "sequence", {**SAPO, "ratio": "sequence"}),
        ("luspo", "sequence", {**GSPO, "aggregate": "seq-mean-token-sum"}),
        ("gmpo", "token", {**GMPO, "clip_low": 0.3, "clip_high": 0.4}),
    ],
)
@pytest.mark.reference("trl")
def test_losses_have_trls_value_and_gradient(loss_type, level, fields, seed, monkeypatch):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    from trl import GRPOTrainer
    from trl.experimental.gmpo import GMPOTrainer

    data = batch(seed)
    new = data["new"].clone().requires_grad_()
    # A trainer without a model: its method reads these fields, and the rest is its logs.
    accelerator = SimpleNamespace(
        num_processes=1, gather=lambda x: x, reduce=lambda x, **_: x, sync_gradients=False
    )
    trainer = MagicMock(
        loss_type=loss_type,
        importance_sampling_level=level,
        args=SimpleNamespace(
            sapo_temperature_pos=1.0,
            sapo_temperature_neg=1.05,
            delta=None,
            use_bias_correction_kl=False,
        ),
        epsilon_low=0.3,
        epsilon_high=0.4,
        accelerator=accelerator,
        beta=0.0,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        aux_loss_enabled=False,
        use_vllm=False,
        entropy_coef=0.0,
        use_adaptive_entropy=False,
        _entropy_bonus_enabled=False,
        current_gradient_accumulation_steps=1,
        _get_per_token_logps_and_entropies=lambda *_, **__: (new, torch.zeros_like(new), None),
    )
    none = torch.zeros((ROWS, 0), dtype=torch.long)
    value = (GMPOTrainer if loss_type == "gmpo" else GRPOTrainer)._compute_loss(
        trainer,
        None,
        {
            "prompt_ids": none,
            "prompt_mask": none,
            "completion_ids": torch.zeros((ROWS, LENGTH), dtype=torch.long),
            "completion_mask": data["mask"],
            "advantages": data["advantage"],
            "old_per_token_logps": data["old"],
        },
    )
    value.backward()
    found, gradient = ours(data, **fields)
    assert found == pytest.approx(value.item(), rel=1e-5, abs=1e-6)
    torch.testing.assert_close(gradient, new.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("level", "threshold", "cap", "more"),
    [
        ("token", 2.0, 2.0, {}),
        ("token", "0.5_5.0", 5.0, {"floor": 0.5, "mask": True}),  # IcePop
        ("sequence", "0.000001_3.0", 3.0, {"mask": True}),  # TRL's sequence_mask
        ("sequence", "0.5_2.0", 2.0, {"floor": 0.5, "mask": True}),
    ],
)
@pytest.mark.reference("verl")
def test_sampler_weights_are_verls(level, threshold, cap, more, seed):
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights

    data = batch(seed)
    there = data["mask"].bool()
    theirs, _ = compute_rollout_correction_weights(
        data["old"] - data["sampler"], data["mask"], level, threshold
    )
    row = torch.arange(ROWS)[:, None].expand(ROWS, LENGTH)[there]
    found, _ = importance_weights(
        data["old"][there],
        data["sampler"][there],
        cap,
        None if level == "token" else row,
        **more,
    )
    torch.testing.assert_close(found, theirs[there], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("divided", [True, False])
@pytest.mark.reference("verl")
def test_pass_at_k_is_verls(divided, seed):
    from verl.trainer.ppo.core_algos import compute_grpo_passk_outcome_advantage

    rng = np.random.default_rng(seed)
    return_B = rng.integers(0, 4, size=24) / 4
    group_B = np.arange(24) % 4
    theirs, _ = compute_grpo_passk_outcome_advantage(
        torch.tensor(return_B)[:, None],
        torch.ones(24, 1),
        group_B,
        config={"norm_adv_by_std_in_grpo": divided},
    )
    found = group_advantage(
        return_B, group_B, GroupConfig(kind="grpo_passk" if divided else "passk")
    )
    np.testing.assert_allclose(found, theirs[:, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("singleton", ["raw", "zero"])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.reference("verl")
def test_the_optimal_token_baseline_is_verls(seed, weighted, singleton):
    from verl.trainer.ppo.core_algos import compute_multi_turn_optimal_token_baseline_advantage

    # Six episodes of two turns, paid at both; between the replies verl's rows have a hole.
    rng = np.random.default_rng(seed)
    width = 12
    mask = np.zeros((ROWS, width), dtype=np.float32)
    reward = np.zeros((ROWS, width))
    turn, paid = [], []
    for episode in range(ROWS):
        first, second = rng.integers(1, 5, size=2)
        for k, (start, length) in enumerate(((0, first), (first + 2, second))):
            mask[episode, start : start + length] = 1
            reward[episode, start + length - 1] = rng.integers(0, 3)
            paid.append(reward[episode, start + length - 1])
            turn += [2 * episode + k] * length
    there = mask.astype(bool)
    old = -rng.exponential(size=(ROWS, width)) - 0.01
    square = np.exp(2 * old) + rng.random((ROWS, width)) * (1 - np.exp(old)) ** 2
    weight = rng.random((ROWS, width)) + 0.5 if weighted else None
    group_B = np.array([0, 0, 0, 1, 1, 2])
    theirs, _ = compute_multi_turn_optimal_token_baseline_advantage(
        *(torch.tensor(x) for x in (reward, mask)),
        group_B,
        *(torch.tensor(x) for x in (old, square)),
        rollout_is_weights=None if weight is None else torch.tensor(weight),
        handle_zero_tail=singleton == "raw",
    )
    episode_N = np.repeat(np.arange(ROWS), 2)
    found = optimal_token_baseline(
        turn_table(paid, [f"e{b}" for b in episode_N], group=group_B[episode_N]),
        TokenTable(np.array(turn), old[there], old_logprob_M=old[there].astype(np.float32)),
        square[there],
        sampler_weight_M=None if weight is None else weight[there],
        singleton=singleton,
    )
    expected = theirs.numpy()[there]
    if singleton == "zero":
        # verl keeps the return of a group of one in either form.
        expected = np.where(group_B[np.nonzero(there)[0]] == 2, 0.0, expected)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
