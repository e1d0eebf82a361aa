"""VirtualHome through Gymnasium: the contract, its options, and what info says."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env
from small_home import make_task

from creditrl.envs.check import check
from creditrl.envs.virtualhome.env import VirtualHomeConfig
from creditrl.envs.virtualhome.kinds import KINDS

ENV_ID = "CreditRL/VirtualHome-v0"
QUICK = ["registration", "info_keys_and_types", "ends_and_limits", "snapshot_continues_alike"]
QUICK += ["state_keys", "expert_finishes", "single_equals_vector", "groups_stay_together"]


def test_gymnasiums_checker_has_nothing_to_say() -> None:
    env = gym.make(ENV_ID)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=True)  # maps are drawn by other tests


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"profile": "v1"},
        {"profile": "spa"},
        {"sight": "room", "house_seed": 2, "admissible_limit": 30, "world_without": ("CLOSE",)},
    ],
    ids=["fixed", "v1", "spa", "more"],
)
def test_the_contract_holds(options: dict[str, Any]) -> None:
    # The other rules: `creditrl check VirtualHome`.
    rules = [name for name in QUICK if options == {} or name != "groups_stay_together"]
    check(ENV_ID, rules=rules, **options).raise_for_failures()


def test_equal_seeds_give_equal_episodes_and_draws_come_from_them() -> None:
    task = make_task()
    shown = []
    for seed in (5, 5, 6):
        env = gym.make(ENV_ID, profile="spa")
        env.reset(seed=seed, options={"task": task})
        shown.append([env.step(text)[0] for text in ("walk to bed", "sit on bed", "wake up")])
    assert shown[0] == shown[1] == shown[2]


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
