"""The loop: methods train end to end, runs resume to the same next update, equal rows once."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import TEXTS, make_context, make_policy, make_trajectory, make_venv
from toy_env import ToyVectorEnv

from creditrl.agents.prompts import get_form
from creditrl.agents.transformers import TransformersAgent
from creditrl.errors import CheckpointError, ConfigError, CreditInputError
from creditrl.trainers import batch
from creditrl.trainers.batch import build_rows
from creditrl.trainers.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint
from creditrl.trainers.collect.demonstrations import (
    DemonstrationCollector,
    Demonstrator,
    demonstrate,
)
from creditrl.trainers.collect.explore import exploration
from creditrl.trainers.config import BudgetConfig, OptimConfig, RolloutConfig
from creditrl.trainers.credit import turn_table
from creditrl.trainers.loop import Trainer
from creditrl.trainers.methods import list_methods, method_info
from creditrl.trainers.methods.base import ExploreConfig
from creditrl.trainers.models.base import LearnedModel
from creditrl.trainers.models.configs import LoRAConfig
from creditrl.trainers.models.policy import Policy
from creditrl.trainers.rewards import reward_columns
from creditrl.types import Trajectory, Turn

FORM = get_form("plain")


def prepare(trainer: Trainer) -> dict[str, float]:
    """Let a method that explores first do so, as a run does."""
    explore = trainer.method.explore
    if explore is None:
        return {}
    agent = TransformersAgent(trainer.policy.model, trainer.policy.tokenizer, max_new_tokens=1)
    context = make_context(trainer.method, agent=agent)
    found = [t for part in exploration(context, 8) for t in part.trajectories]
    return trainer.pretrain(found, 0, 0.0, lambda *_, **__: None)


def explores(config: Any) -> bool:
    return any(field.name == "exploration" for field in dataclasses.fields(config))


def make_trainer(
    name: str,
    policy: Policy,
    *,
    merge_equal: bool = True,
    tokens: int = 1,
    temperature: float = 1.0,
    check_every: int = 1,
    actions: str = "free",
) -> Trainer:
    info = method_info(name)
    config = info.config()
    if explores(config):
        # Of an untrained policy every episode is malformed.
        open_to_all = ExploreConfig(drop_malformed=False, drop_repeats=None)
        config = dataclasses.replace(config, exploration=open_to_all)
    if name == "hisr":
        bare = dataclasses.replace(config.hindsight, bare=True)  # instructions take long
        config = dataclasses.replace(config, hindsight=bare)
    if name == "vine":
        config = dataclasses.replace(config, rollouts=1, share=0.2)  # all states take long
    method = info.method(config)
    rollout = RolloutConfig(
        groups=4,
        group_size=4,
        max_new_tokens=tokens,
        reward="success" if method.binary_outcomes else "environment",
        reward_scale=1.0 if method.binary_outcomes else 0.1,
        temperature=temperature,
    )
    agent = TransformersAgent(
        policy.model,
        policy.tokenizer,
        max_new_tokens=tokens,
        merge_equal=merge_equal,
        temperature=temperature,
        actions=actions,
    )
    if method.collection == "demonstrations":
        venv = make_venv(4)
        expert = Demonstrator(venv, FORM, policy.tokenizer, agent.chat_format, tokens)
        collector = DemonstrationCollector(demonstrate(venv, expert, FORM, 8, 0), 16, 0, True)
    else:
        collector = method.collector(make_context(method, agent=agent))
    return Trainer(
        policy,
        method,
        collector,
        rollout,
        OptimConfig(lr=1e-3, minibatches=2, merge_equal=merge_equal, check_every=check_every),
        BudgetConfig(updates=4),
        seed=0,
        after_weights=agent.weights_changed,
    )


def test_models_are_fitted_to_the_usable_episodes_alone():
    class Listener(LearnedModel):
        name = "listener"

        def pretrain(self, policy, trajectories, show):
            self.heard = [t.id for t in trajectories]
            return {"heard": float(len(trajectories))}

    def said(name: str, *words: str) -> Trajectory:
        turns = tuple(Turn("#P#", word, word, 0.0) for word in words)
        return make_trajectory(turns, id=name)

    # The fourth "up" before the same observation is one too many.
    explored = [
        said("moves", "up", "left"),
        said("stuck", *["up"] * 4),
        said("thrice", *["up"] * 3),
    ]
    found = {}
    for name in ("hisr", "spa"):
        trainer = make_trainer(name, make_policy())
        info = method_info(name)
        trainer.method = info.method(info.config())
        listener = Listener()
        trainer.models = (listener,)
        found[name] = trainer.pretrain(explored, 0, 0.0, lambda *_, **__: None), listener.heard
    metrics, heard = found["hisr"]
    assert heard == ["moves", "thrice"] and metrics["listener/heard"] == 2
    assert (metrics["explored"], metrics["dropped_repetitive"]) == (3, 1)
    assert metrics["dropped_malformed"] == 0
    assert found["spa"] == ({"listener/heard": 3.0}, ["moves", "stuck", "thrice"])


def weights(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in policy.model.state_dict().items()}


def sharpen(policy: Policy) -> None:
    """Make the random weights say something, so that the temperature matters."""
    with torch.no_grad():
        for value in policy.model.parameters():
            value.mul_(3.0)


@pytest.mark.parametrize("name", [info.name for info in list_methods()])
def test_every_method_trains_and_resumes_to_the_same_next_update(name, tmp_path, monkeypatch):
    policy = make_policy()
    trainer = make_trainer(name, policy)
    monkeypatch.setattr(type(trainer.method), "policy_waits", 0)
    prepare(trainer)
    begin = weights(policy)
    for _ in range(2):
        metrics, _ = trainer.update()
        assert np.isfinite(metrics["loss"])
    assert any((begin[key] != value).any() for key, value in weights(policy).items())
    save_checkpoint(tmp_path, 2, trainer.state_dict(), {"method": name}, keep=1)
    expected, trajectories = trainer.update()

    again = make_trainer(name, make_policy(seed=1))
    path = latest_checkpoint(tmp_path)
    assert path is not None
    state, meta = load_checkpoint(path, {"method": name})
    assert meta["update"] == 2
    again.load_state_dict(state)
    found, same = again.update()
    assert [t.turns for t in same] == [t.turns for t in trajectories]
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5, abs=1e-7)
    for key, value in weights(policy).items():
        torch.testing.assert_close(again.policy.model.state_dict()[key], value)


def test_a_policy_waits_while_its_models_learn(monkeypatch):
    policy = make_policy()
    trainer = make_trainer("ppo", policy)
    monkeypatch.setattr(type(trainer.method), "policy_waits", 2)
    begin = weights(policy)
    for _ in range(2):
        metrics, _ = trainer.update()
        assert "loss" not in metrics and metrics["critic/loss"] > 0
    assert all((begin[key] == value).all() for key, value in weights(policy).items())
    metrics, _ = trainer.update()
    assert any((begin[key] != value).any() for key, value in weights(policy).items())


def test_merging_equal_rows_changes_neither_rollouts_nor_updates():
    policies = [make_policy(), make_policy()]
    results = []
    for policy, merge in zip(policies, (True, False), strict=True):
        trainer = make_trainer("gigpo", policy, merge_equal=merge)
        metrics, trajectories = trainer.update()
        results.append((metrics["loss"], [t.turns for t in trajectories]))
    assert results[0][0] == pytest.approx(results[1][0], abs=1e-6)
    actions = [[[turn.action for turn in turns] for turns in found] for _, found in results]
    assert actions[0] == actions[1]
    for key, value in weights(policies[0]).items():
        torch.testing.assert_close(policies[1].model.state_dict()[key], value, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_old_logprobs_agree_with_the_samplers_and_a_stale_sampler_is_noticed(temperature):
    policy = make_policy()
    sharpen(policy)
    trainer = make_trainer("grpo", policy, tokens=3, temperature=temperature)
    metrics, _ = trainer.update()
    assert metrics["sampler_gap"] < 1e-4
    assert "sampler_gap_alarm" not in metrics
    # The first minibatch stands where the samples were drawn: every ratio of it is 1.
    assert metrics["ratio_max"] < 2.0
    # A sampler that nobody told of new weights: other weights decode than train.
    stale = make_policy(seed=5)
    trainer.collector.agent = TransformersAgent(stale.model, stale.tokenizer, max_new_tokens=3)
    with torch.no_grad():
        for value in stale.model.parameters():
            value.mul_(3.0)
    metrics, _ = trainer.update()
    assert metrics["sampler_gap_alarm"] == 1.0


# One of each collector: what records a turn has to keep the list that its reply was chosen from.
@pytest.mark.parametrize(
    "name", ["grpo", "dapo", "istar", "branch", "vine", "three_spo", "tree_grpo"]
)
@pytest.mark.parametrize("actions", ["listed", "choice"])
def test_the_loss_knows_the_list_that_every_collector_let_replies_be_chosen_from(name, actions):
    policy = make_policy()
    sharpen(policy)
    trainer = make_trainer(name, policy, tokens=3, actions=actions)
    metrics, trajectories = trainer.update()
    assert all(turn.options is not None for t in trajectories for turn in t.turns)
    assert metrics["sampler_gap"] < 1e-4


# An engine rounds in its own way: its log-probabilities are never the old ones.
@pytest.mark.parametrize(("backend", "between"), [("transformers", False), ("vllm", True)])
def test_between_checks_the_samplers_logprobs_are_the_old_ones(backend, between):
    trainer = make_trainer("grpo", make_policy(), check_every=2)
    trainer.rollout = dataclasses.replace(trainer.rollout, backend=backend)
    checked = ["sampler_gap" in trainer.update()[0] for _ in range(4)]
    assert checked == [True, between, True, between]


@pytest.mark.parametrize("lora", [None, LoRAConfig(rank=2)])
def test_the_kl_is_to_the_policy_as_it_was_before_the_method_trained(lora):
    policy = make_policy(lora=lora)
    trainer = make_trainer("reinforce_pp", policy)
    rows = trainer.collector.collect(0).trajectories
    begin, before = policy.score(build_rows(rows)), weights(policy)
    trainer.update()
    trainer.update()
    changed = {key for key, value in weights(policy).items() if (before[key] != value).any()}
    assert changed and all("lora" in key for key in changed) == (lora is not None)
    assert np.abs(policy.score(build_rows(rows)) - begin).max() > 1e-3
    with policy.reference():
        np.testing.assert_allclose(policy.score(build_rows(rows)), begin, atol=1e-5)


def demonstrator(form: Any = FORM, tokens: int = 1, **noise: Any) -> Demonstrator:
    policy = make_policy(texts=[*TEXTS, "Push every box (X) onto a target (O).\n\n"])
    agent = TransformersAgent(policy.model, policy.tokenizer, max_new_tokens=tokens)
    return Demonstrator(make_venv(4), form, policy.tokenizer, agent.chat_format, tokens, **noise)


def test_demonstrations_are_the_experts_and_solve_their_levels():
    expert = demonstrator()
    found = demonstrate(expert.venv, expert, FORM, 10, seed=3)
    assert len(found) == 10 and all(t.success for t in found)
    assert len({t.task.id for t in found}) == 10
    for trajectory in found:
        assert len(trajectory.turns) == trajectory.task.difficulty
        for turn in trajectory.turns:
            assert expert.tokenizer.decode(turn.reply_ids).strip() == turn.action
            assert expert.tokenizer.decode(turn.prompt_ids) == turn.observation


def test_noise_is_played_and_not_cloned():
    expert = demonstrator(noise=0.4, seed=1)
    found = demonstrate(expert.venv, expert, FORM, 40, seed=3)
    assert all(t.success for t in found)
    turns = [turn for t in found for turn in t.turns]
    cloned = [turn for turn in turns if turn.reply_ids]
    assert 0.25 < 1 - len(cloned) / len(turns) < 0.55
    assert len(turns) > sum(t.task.difficulty for t in found)  # it led them astray
    collector = DemonstrationCollector(found, len(cloned), seed=0, by_turn=True)
    dealt = [turn for t in collector.collect(0).trajectories for turn in t.turns]
    assert sorted(t.observation for t in dealt) == sorted(t.observation for t in cloned)


def test_noise_in_a_growing_conversation_is_read_and_not_cloned():
    dialogue = get_form("dialogue")
    expert = demonstrator(dialogue, 2, noise=0.4, seed=1)
    found = demonstrate(expert.venv, expert, dialogue, 20, seed=3)
    noisy = [t for t in found if any(not turn.reply_ids for turn in t.turns[:-1])]
    assert noisy
    rows = build_rows(noisy, "full")  # one row per episode, though turns without ids are within
    cloned = [turn.reply_ids for t in noisy for turn in t.turns if turn.reply_ids]
    assert rows.token_M.tolist() == [token for reply in cloned for token in reply]


def test_a_reply_that_is_cut_is_no_demonstration():
    expert = demonstrator(react := get_form("react"), 3)
    with pytest.raises(ConfigError, match=r"has \d+ tokens, and rollout.max_new_tokens is 3"):
        demonstrate(expert.venv, expert, react, 4, seed=0)


def test_an_environment_without_an_expert_gives_no_demonstrations(monkeypatch):
    policy = make_policy()
    agent = TransformersAgent(policy.model, policy.tokenizer, max_new_tokens=1)
    venv = ToyVectorEnv(2)
    monkeypatch.setattr(venv, "expert_actions", lambda indices: [None] * len(indices))
    expert = Demonstrator(venv, FORM, policy.tokenizer, agent.chat_format, 1)
    with pytest.raises(ConfigError, match=r"expert of Toy/Corridor-v0 solved none.*to 0"):
        demonstrate(venv, expert, FORM, 2, seed=0)


def test_demonstration_batches_cover_an_epoch_once():
    expert = demonstrator()
    found = demonstrate(expert.venv, expert, FORM, 6, seed=3)
    turns = sum(len(t.turns) for t in found)
    collector = DemonstrationCollector(found, 5, seed=0, by_turn=True)
    batches = [collector.collect(i).trajectories for i in range(-(-turns // 5))]
    dealt = [(t.id, t.turns[0].observation) for batch in batches for t in batch]
    assert len(dealt) == turns
    assert sorted(dealt) == sorted((t.id, turn.observation) for t in found for turn in t.turns)
    assert [len(b) for b in batches[:-1]] == [5] * (len(batches) - 1)


def test_rewards_beyond_what_float32_holds_beside_others_are_refused():
    turns = turn_table(reward=[0.5, 2e6, 0.0], episode=[0, 1, 1])
    with pytest.raises(CreditInputError, match=r"Episode 1 has reward 2e\+06 at turn 0.*1e\+06"):
        reward_columns(turns, RolloutConfig())
    huge = turn_table(reward=[1e30], episode=[0])
    with pytest.raises(CreditInputError, match="reward_scale"):
        reward_columns(huge, RolloutConfig())
    # Scaled they are within the bound, and where success is the reward they are not read.
    scaled = reward_columns(turns, RolloutConfig(reward_scale=0.5))
    np.testing.assert_allclose(scaled.reward_N, [0.25, 1e6, 0.0])
    assert not reward_columns(huge, RolloutConfig(reward="success")).reward_N.any()


def test_reward_columns_scale_and_can_be_success_alone():
    turns = turn_table([-0.1, 10.9, -0.1], [0, 0, 1], success=[True, True, False])
    scaled = reward_columns(turns, RolloutConfig(reward_scale=0.1))
    np.testing.assert_allclose(scaled.reward_N, [-0.01, 1.09, -0.01], rtol=1e-6)
    np.testing.assert_allclose(scaled.return_N, [1.08, 1.08, -0.01], rtol=1e-6)
    success = reward_columns(turns, RolloutConfig(reward="success"))
    np.testing.assert_allclose(success.reward_N, [0, 1, 0])
    np.testing.assert_allclose(success.return_N, [1, 1, 0])


def test_a_checkpoint_of_another_layout_method_or_with_damage_is_refused(tmp_path):
    path = save_checkpoint(tmp_path, 3, {"x": torch.ones(2)}, {"method": "grpo"}, keep=2)
    with pytest.raises(CheckpointError, match="method = 'grpo', this run has 'ppo'"):
        load_checkpoint(path, {"method": "ppo"})
    meta = path / "checkpoint.json"
    meta.write_text(meta.read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(CheckpointError, match="format 99.*reads format 1"):
        load_checkpoint(path, {"method": "grpo"})
    path = save_checkpoint(tmp_path, 4, {"x": torch.ones(2)}, {"method": "grpo"}, keep=2)
    (path / "state.pt").write_bytes(b"no tensors")
    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(path, {"method": "grpo"})


def test_old_checkpoints_go_and_a_torn_one_is_never_the_latest(tmp_path):
    for update in (1, 2, 3):
        save_checkpoint(tmp_path, update, {}, {}, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["update_000002", "update_000003"]
    (tmp_path / ".partial_000009").mkdir()
    (tmp_path / "update_000009").mkdir()  # without checkpoint.json
    latest = latest_checkpoint(tmp_path)
    assert latest is not None and latest.name == "update_000003"


def test_a_groups_rows_stay_in_one_minibatch():
    policy = make_policy()
    trainer = make_trainer("gigpo", policy)
    collected = trainer.collector.collect(0).trajectories
    rows, turns = build_rows(collected), batch.turn_table(collected)
    parts = list(trainer.optimizer._minibatches(rows, turns, np.random.default_rng(0)))
    groups = [set(turns.group_N[rows.turn_M[part]].tolist()) for part in parts]
    assert len(groups) == 2 and not groups[0] & groups[1]
    assert sorted(np.concatenate(parts).tolist()) == list(range(rows.num_tokens))
    assert dataclasses.is_dataclass(rows)
