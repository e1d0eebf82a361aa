"""A tiny vocabulary, a tiny policy, and episodes of drawn tokens."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from small_runs import make_trajectory

from creditrl.types import Turn

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

GRID = "######\n#_OPX#\n#√__S#\n#____#\n#____#\n######\n"


def turn(prompt, reply, **options):
    return Turn("", "", "", 0.0, prompt_ids=tuple(prompt), reply_ids=tuple(reply), **options)


def episode(turns, number=0):
    return make_trajectory(turns, number, id=f"episode-{number}", group=0, member=number)


def window_episodes(vocabulary, *, seed=0, count=24, prompts=6, longest=9, reply=3):
    """Episodes whose turns draw their prompts from few, so that many rows are equal."""
    rng = np.random.default_rng(seed)
    pool = [
        rng.integers(4, vocabulary, size=rng.integers(2, longest)).tolist() for _ in range(prompts)
    ]
    return [
        episode(
            [
                turn(
                    pool[rng.integers(prompts)],
                    rng.integers(4, vocabulary, size=rng.integers(1, reply + 1)).tolist(),
                )
                for _ in range(rng.integers(1, 4))
            ],
            number,
        )
        for number in range(count)
    ]


def growing_episodes(vocabulary, *, seed=0, count=6, turns=4):
    """Episodes whose conversation only grows."""
    rng = np.random.default_rng(seed)
    episodes = []
    for number in range(count):
        context, made = [], []
        for _ in range(turns):
            context += rng.integers(4, vocabulary, size=rng.integers(1, 6)).tolist()
            reply = rng.integers(4, vocabulary, size=rng.integers(1, 4)).tolist()
            made.append(turn(context, reply))
            context = context + reply
        episodes.append(episode(made, number))
    return episodes


def exact_rms_norm(norm, x):
    return norm.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + norm.variance_epsilon)


@pytest.fixture(scope="session")
def tokenizer():
    from creditrl.trainers.models.tokenizer import build_tokenizer

    return build_tokenizer([GRID, "up", "down", "left", "right"])


@pytest.fixture
def make_policy(tokenizer):
    from creditrl.trainers.models.configs import SmallPolicyConfig
    from creditrl.trainers.models.policy import Policy

    def make(*, dtype=None, seed=0, lora=None, **shape):
        config = SmallPolicyConfig(**{"hidden": 32, "heads": 2} | shape)
        policy = Policy.small(config, tokenizer, seed=seed, lora=lora)
        if dtype is not None:
            policy.model.to(dtype)
            for part in policy.model.modules():
                if type(part).__name__ == "Qwen2RMSNorm":
                    # transformers' own goes through float32, which would hide in exact comparisons.
                    part.forward = functools.partial(exact_rms_norm, part)
        return policy

    return make


@pytest.fixture
def episodes_of(tokenizer):
    def make(kind, **options):
        build = {"window": window_episodes, "growing": growing_episodes}[kind]
        return build(len(tokenizer), **options)

    return make
