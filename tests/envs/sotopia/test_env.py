"""SOTOPIA through Gymnasium: the contract, its options, and every official combination."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from creditrl.envs.check import RULES, check
from creditrl.envs.sotopia.env import SotopiaConfig, SotopiaVectorEnv
from creditrl.errors import ConfigError

ENV_ID = "CreditRL/SOTOPIA-v0"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"order": "simultaneous", "observation": "new", "side": 1, "visibility": "own"},
        {"order": "random", "max_turns": 7, "max_stale": 4},
    ],
)
def test_the_contract_holds(options: dict[str, Any]) -> None:
    # The expert takes turns with its partner; other orders are not its game. What options do not
    # touch is tested once.
    apart = {
        "workers_change_nothing",
        "expert_finishes",
        "splits_share_no_task",
        "takes_any_string",
        "same_episode_in_any_process",
    }
    rules = [rule.name for rule in RULES if options == {} or rule.name not in apart]
    check(ENV_ID, rules=rules, **options).raise_for_failures()


def test_the_contract_holds_where_most_scenarios_cannot_be_scored(test_data: Path) -> None:
    rules = (
        "ends_and_limits",
        "single_equals_vector",
        "finished_copies_wait",
        "partial_steps_and_clones",
        "autoreset_like_gymnasium",
    )
    options = {"data": "official", "data_dir": test_data / "sotopia", "split": "valid_unseen"}
    check(ENV_ID, rules=rules, **options, task_types="normbank").raise_for_failures()
    check(ENV_ID, rules=rules, **options).raise_for_failures()


def test_both_sides_of_a_combination_are_tasks() -> None:
    both, first = SotopiaConfig().tasks(), SotopiaConfig(side=0).tasks()
    assert len(both) == 2 * len(first)
    assert [both.task(k).id.rpartition("/")[2] for k in range(4)] == ["0", "1", "0", "1"]
    assert both.find(first.task(3).id) == both.task(6)


def test_task_types_choose_kinds_of_scenarios() -> None:
    kinds = {task.type for task in list(SotopiaConfig(split="valid_seen").tasks())[:40]}
    assert len(kinds) == 4
    for kind in kinds:
        chosen = SotopiaConfig(split="valid_seen", task_types=kind).tasks()
        assert {task.type for task in chosen} == {kind}
    with pytest.raises(ConfigError, match="task_types='chess'"):
        SotopiaConfig(task_types="chess").tasks()


@pytest.mark.slow
@pytest.mark.parametrize("partner", ["scripted", "small-talk"])
def test_every_official_combination_plays_twenty_turns(test_data: Path, partner: str) -> None:
    venv = SotopiaVectorEnv(
        900,
        data="official",
        data_dir=test_data / "sotopia",
        split="valid_unseen",
        partner=partner,
        judge="none",
    )
    assert len(venv.tasks) == 900
    texts, info = venv.reset(seed=0, options={"task": list(range(900))})
    assert len(set(info["task_id"])) == 900
    assert Counter(info["side"].tolist()) == {0: 450, 1: 450}
    assert all(text.startswith("You are ") for text in texts)
    steps = 0
    ended = np.zeros(900, dtype=bool)
    while venv.active.any():
        _, reward, terminated, truncated, info = venv.step(["say: Please go on."] * 900)
        steps += 1
        over = terminated | truncated
        assert np.isnan(reward[over]).all() and not reward[~over].any()
        assert (truncated[over] == (info["ending"][over] == "turn_limit")).all()
        assert (info["dialogue_turn"][truncated] == 20).all()
        ended |= over
    assert ended.all() and steps == 10
    assert set(info["judge_status"]) == {"none"} and not any(info["error"])
    if partner == "small-talk":
        assert set(info["ending"]) == {"turn_limit"}


def test_where_rules_cannot_score_the_episode_is_invalid(test_data: Path) -> None:
    env = gym.make(
        ENV_ID, data="official", data_dir=test_data / "sotopia", split="valid_unseen",
        task_types="social_iqa", disable_env_checker=True,
    )  # fmt: skip
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step("leave")
    assert terminated and np.isnan(reward)
    assert info["judge_status"] == "none" and "cannot score such scenarios" in info["error"]


def test_importing_it_brings_nothing_heavy() -> None:
    code = (
        "import sys, gymnasium, numpy; before = set(sys.modules); "
        "import creditrl.envs.sotopia.env; "
        "new = {name.split('.')[0] for name in set(sys.modules) - before} - {'creditrl'}; "
        "print(len(new), *new & {'pettingzoo', 'httpx', 'xml', 'rich', 'torch', 'regex'})"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, *heavy = told.stdout.split()
    assert heavy == [] and int(count) < 10


def test_with_a_live_partner_the_contract_holds_as_far_as_it_goes() -> None:
    from creditrl.agents import AgentPartner, RandomAgent

    # A generator goes on from one episode to the next, as a model's sampling does.
    live = AgentPartner(RandomAgent(seed=0), "plain")
    report = check(ENV_ID, partner=live)
    report.raise_for_failures()
    outcomes = {result.rule: result.outcome for result in report.results}
    assert outcomes["snapshot_continues_alike"] == "not applicable"
    assert outcomes["takes_any_string"] == outcomes["groups_stay_together"] == "passed"
