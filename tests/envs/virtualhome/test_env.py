"""VirtualHome through Gymnasium: its options, and what info says."""

from __future__ import annotations

import warnings

import gymnasium as gym
from gymnasium.utils.env_checker import check_env

from creditrl.envs.virtualhome.env import VirtualHomeConfig
from creditrl.envs.virtualhome.kinds import KINDS

ENV_ID = "CreditRL/VirtualHome-v0"


def test_gymnasiums_checker_has_nothing_to_say() -> None:
    env = gym.make(ENV_ID)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=True)  # maps are drawn by other tests


def test_turns_are_limited_as_the_profile_asks() -> None:
    assert VirtualHomeConfig().turn_limit == VirtualHomeConfig(profile="spa").turn_limit == 40
    assert VirtualHomeConfig(profile="v1").turn_limit == 100
    env = gym.make(ENV_ID, max_turns=2)
    assert env.reset(seed=0)[1]["action_hint"] == "walk to <object>"
    assert env.step("dance")[3] is False
    assert env.step("dance")[3] is True


def test_kinds_of_tasks_are_chosen() -> None:
    env = gym.make(ENV_ID, task_types=("wash_clothes", "make_coffee"), split="valid_seen")
    kinds = {env.reset(seed=seed)[1]["task_type"] for seed in range(12)}
    assert kinds == {"wash_clothes", "make_coffee"}
    one = VirtualHomeConfig(task_types="make_coffee")
    assert one == VirtualHomeConfig(task_types=["make_coffee", "make_coffee"])  # type: ignore[arg-type]
    assert len(one.tasks()) == 9_600 // len(KINDS)
