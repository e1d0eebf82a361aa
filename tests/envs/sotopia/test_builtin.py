"""The builtin tasks through Gymnasium: they need no data, end, and are the same everywhere."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import creditrl
from creditrl.bench.tasks import prove_tasks
from creditrl.envs.sotopia.env import SotopiaEnv, SotopiaVectorEnv
from creditrl.envs.sotopia.situations import KINDS

ENV_ID = "CreditRL/SOTOPIA-v0"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_ends_and_is_scored(kind: str) -> None:
    venv = SotopiaVectorEnv(16, task_types=kind, split="valid_seen")
    _, info = venv.reset(seed=3)
    rng = np.random.default_rng(0)
    while venv.active.any():
        actions = [
            acts[int(rng.integers(len(acts)))] if len(acts) else "nothing"
            for acts in info["admissible_actions"]
        ]
        _, reward, _, _, info = venv.step(actions)
        assert np.isfinite(reward).all()
    assert all(info["ending"])
    assert set(info["judge_status"]) == {"ok"}
    assert ((info["score"] >= 0) & (info["score"] <= 1)).all()
    assert not (info["success"] & (info["score"] < 0.5 - 1e-9)).any()


def test_nothing_is_done_before_it_begins_and_the_expert_does_most() -> None:
    for split in ("train", "valid_unseen"):
        proof = prove_tasks(SotopiaEnv, {}, split, limit=40)
        assert proof.trivial == [] and proof.repeated == []
        assert len(proof.unsolved) <= 0.1 * proof.tasks


def test_without_options_the_reward_comes_once_at_the_end_and_is_the_score() -> None:
    env = gym.make(ENV_ID)
    text, info = env.reset(seed=7)
    assert "<offer " in text and info["task_id"].startswith("builtin/train/")
    assert info["judge"] == "sotopia-lite/negotiation v1" and info["partner"] == "scripted"
    rewards = []
    over = False
    while not over:
        action = creditrl.expert_action(env)
        assert action is not None
        _, reward, terminated, truncated, info = env.step(action)
        rewards.append(reward)
        over = terminated or truncated
    assert rewards[:-1] == [0.0] * (len(rewards) - 1)
    share = min(max(info["judge_scores"]["share"], 0.0), 1.0)
    assert rewards[-1] == info["score"] == pytest.approx(share)
    assert info["success"] == (info["score"] >= 0.5 and info["judge_scores"]["agreement"] == 1.0)
