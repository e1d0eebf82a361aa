from __future__ import annotations

import copy

import numpy as np
import pytest

from creditrl.errors import ConfigError, CreditInputError
from creditrl.trainers.batch import build_rows
from creditrl.trainers.losses.config import ValueLossConfig
from creditrl.trainers.methods.grpo import GRPO, GRPOConfig
from creditrl.trainers.methods.ppo import PPO, PPOConfig
from creditrl.trainers.models.base import Batch
from creditrl.trainers.models.configs import LoRAConfig
from creditrl.trainers.models.critic import Critic, CriticConfig
from creditrl.types import Credit

torch = pytest.importorskip("torch")

FREE = ValueLossConfig(clip=None)
KINDS = ("copy", "head")


def config(kind, **options):
    lr = {"copy": 2e-3, "head": 1e-2}[kind]
    return CriticConfig(**{"kind": kind, "lr": lr, "loss": FREE, "epochs": 60} | options)


def context_value(rows):
    """A simple target: how often the symbol 5 stands in what the token is predicted from, / 3."""
    ids = [rows.ids[a:b] for a, b in zip(rows.offset_R, rows.offset_R[1:], strict=False)]
    return np.array(
        [
            np.count_nonzero(ids[r][: p + 1] == 5) / 3
            for r, p in zip(rows.row_M.tolist(), rows.position_M.tolist(), strict=True)
        ],
        dtype=np.float32,
    )


def last_token_value(rows):
    """A simpler one, which an untrained policy's state shows: whether the last token is even."""
    return (rows.ids[rows.offset_R[rows.row_M] + rows.position_M] % 2).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_an_untrained_critic_is_zero(make_policy, episodes_of, kind):
    rows = build_rows(episodes_of("window"))
    critic = Critic(make_policy(lora=LoRAConfig()), config(kind))
    np.testing.assert_array_equal(critic.values(rows), 0.0)
    # That it leaves the policy alone: test_side_by_side.py.
    assert not any("lora" in name for name, _ in critic.net.named_parameters())
    # Beside a policy in bfloat16 it is float32.
    policy = make_policy()
    policy.model.to(torch.bfloat16)
    critic = Critic(policy, config(kind))
    assert {p.dtype for p in critic.net.parameters()} == {torch.float32}
    assert {p.dtype for p in policy.model.parameters()} == {torch.bfloat16}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "value"), [("copy", context_value), ("head", last_token_value)])
def test_it_beats_its_constant_predictor_on_held_out_rows(make_policy, episodes_of, kind, value):
    train = build_rows(episodes_of("window", count=60, prompts=50, seed=1))
    held_out = build_rows(episodes_of("window", count=30, prompts=30, seed=2))
    target_M, truth_M = value(train), value(held_out)
    critic = Critic(make_policy(), config(kind, epochs=20, minibatches=4))
    critic.fit_targets(train, target_M)
    error = np.mean((critic.values(held_out) - truth_M) ** 2)
    constant = np.mean((target_M.mean() - truth_M) ** 2)
    assert error < 0.7 * constant, (error, constant)


def test_equal_contexts_have_equal_values_in_both_context_modes(make_policy, episodes_of):
    episodes = episodes_of("growing")
    full, window = build_rows(episodes, "full"), build_rows(episodes, "window", merge_equal=False)
    critic = Critic(make_policy(), config("copy", epochs=3))
    critic.fit_targets(full, context_value(full))
    np.testing.assert_allclose(critic.values(full), critic.values(window), atol=1e-5)


def test_the_clip_keeps_values_near_the_old_ones(make_policy, episodes_of):
    rows = build_rows(episodes_of("window"))
    critic = Critic(
        make_policy(), config("copy", epochs=40, loss=ValueLossConfig(clip=0.1), normalise=False)
    )
    metrics = critic.fit_targets(rows, np.full(rows.num_tokens, 5.0, dtype=np.float32))
    # Beyond 0.1 from the old value 0 the gradient ends; momentum carries it somewhat further.
    assert 0.05 < critic.values(rows).mean() < 1.0
    assert metrics["clip_fraction"] > 0.5


def test_as_a_learned_model_it_fills_the_value_column_and_fits_its_targets(
    make_policy, episodes_of
):
    episodes = episodes_of("window")
    batch = Batch.of(episodes)
    rows = batch.rows
    policy = make_policy()
    before, critic = policy.score(rows), Critic(policy, config("copy", epochs=5))
    scored = critic.score(batch)
    assert scored.turns is batch.turns and len(scored.tokens.value_M) == len(batch.tokens)
    with pytest.raises(CreditInputError, match="'ppo' gave no value targets"):
        critic.fit(scored, Credit("ppo", ""))
    with pytest.raises(CreditInputError, match="target_M has 1 values"):
        critic.fit_targets(rows, np.zeros(1))
    target_M = context_value(rows)
    metrics = critic.fit(scored, Credit("ppo", "", value_target_M=target_M))
    assert metrics["explained_variance"] == pytest.approx(0.0, abs=1e-6)  # by the old values, all 0
    assert metrics["target_mean"] == pytest.approx(target_M.mean(), rel=1e-5)
    later = critic.fit_targets(rows, target_M)
    assert later["explained_variance"] > 0.1
    assert later["loss"] < metrics["loss"]
    np.testing.assert_array_equal(policy.score(rows), before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_critic_takes_the_same_steps(make_policy, episodes_of, kind):
    rows = build_rows(episodes_of("window"))
    target_M = context_value(rows)
    policy = make_policy()
    one = Critic(policy, config(kind, epochs=2, minibatches=3), seed=3)
    one.fit_targets(rows, target_M)
    state = copy.deepcopy(one.state_dict())
    one.fit_targets(rows, target_M)
    two = Critic(policy, config(kind, epochs=2, minibatches=3), seed=3)
    two.load_state_dict(state)
    two.fit_targets(rows, target_M)
    np.testing.assert_array_equal(one.values(rows), two.values(rows))


def test_micro_batches_do_not_change_a_step(make_policy, episodes_of):
    rows = build_rows(episodes_of("window"))
    values = []
    for budget in (30, 10**6):
        critic = Critic(make_policy(), config("copy", epochs=3, token_budget=budget))
        critic.fit_targets(rows, context_value(rows))
        values.append(critic.values(rows))
    np.testing.assert_allclose(values[0], values[1], atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_targets_of_any_size_are_fitted_alike(make_policy, episodes_of, kind):
    rows = build_rows(episodes_of("window"))
    found = []
    for size in (1.0, 1000.0):
        critic = Critic(make_policy(), config(kind, epochs=8, normalise=True))
        critic.fit_targets(rows, size * last_token_value(rows))
        critic.fit_targets(rows, size * (last_token_value(rows) + 1))
        found.append(critic.values(rows) / size)
    np.testing.assert_allclose(found[0], found[1], atol=1e-3)
    assert found[0].mean() > 0.6  # on the way from 1/2 to 3/2


def test_the_policy_can_wait_for_its_critic():
    assert PPO(PPOConfig()).policy_waits == 0
    assert PPO(PPOConfig(critic=CriticConfig(warmup=4))).policy_waits == 4
    assert GRPO(GRPOConfig()).policy_waits == 0
    with pytest.raises(ConfigError, match="kind is 'tree'"):
        CriticConfig(kind="tree")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="warmup is -1"):
        CriticConfig(warmup=-1)
