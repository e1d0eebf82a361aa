"""SOTOPIA through Gymnasium: options, builtin and official tasks, partners and judges by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import creditrl
from creditrl.agents import AgentPartner, RandomAgent
from creditrl.bench.tasks import prove_tasks
from creditrl.envs.check import RULES, check
from creditrl.envs.sotopia.env import SotopiaConfig, SotopiaEnv
from creditrl.envs.sotopia.partners import SmallTalkPartner, make_partner
from creditrl.envs.sotopia.verdict import NoJudge, make_judge
from creditrl.errors import ConfigError

ENV_ID = "CreditRL/SOTOPIA-v0"


def official(test_data: Path) -> dict[str, Any]:
    return {"data": "official", "data_dir": test_data / "sotopia", "split": "valid_unseen"}


def test_both_sides_of_a_combination_are_tasks() -> None:
    both, first = SotopiaConfig().tasks(), SotopiaConfig(side=0).tasks()
    assert len(both) == 2 * len(first)
    assert [both.task(k).id.rpartition("/")[2] for k in range(4)] == ["0", "1", "0", "1"]
    assert both.find(first.task(3).id) == both.task(6)


def test_task_types_select_kinds_of_scenarios() -> None:
    kinds = {task.type for task in list(SotopiaConfig(split="valid_seen").tasks())[:40]}
    assert len(kinds) == 4
    for kind in kinds:
        chosen = SotopiaConfig(split="valid_seen", task_types=kind).tasks()
        assert {task.type for task in chosen} == {kind}


def test_an_episode_that_the_rules_cannot_score_is_invalid(test_data: Path) -> None:
    env = gym.make(ENV_ID, **official(test_data), task_types="social_iqa", disable_env_checker=True)
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step("leave")
    assert terminated and np.isnan(reward)
    assert info["judge_status"] == "none" and "cannot score such scenarios" in info["error"]


def test_the_bargaining_partner_finishes_official_dialogues(test_data):
    venv = gym.make_vec(
        ENV_ID,
        50,
        autoreset_mode="Disabled",
        partner="scripted",
        judge="none",
        **official(test_data),
    )
    info = venv.reset(seed=0, options={"task": [*range(0, 900, 18)]})[1]
    for _ in range(10):
        assert venv.unwrapped.active.any()
        info = venv.step(["say: Please go on."] * 50)[4]
    assert not venv.unwrapped.active.any() and not any(info["error"])
    assert (info["dialogue_turn"][info["ending"] == "turn_limit"] == 20).all()


def test_the_import_loads_no_heavy_package() -> None:
    code = (
        "import sys, gymnasium, numpy; before = set(sys.modules); "
        "import creditrl.envs.sotopia.env; "
        "new = {name.split('.')[0] for name in set(sys.modules) - before} - {'creditrl'}; "
        "print(len(new), *new & {'pettingzoo', 'httpx', 'xml', 'rich', 'torch', 'regex'})"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, *heavy = told.stdout.split()
    assert heavy == [] and int(count) < 10


def test_with_a_live_partner_the_applicable_rules_of_the_contract_hold() -> None:
    # A generator continues from one episode to the next, like a model's sampling.
    live = AgentPartner(RandomAgent(seed=0), "plain")
    # The usual partner's check covers any string, which takes long.
    rules = [rule.name for rule in RULES if rule.name != "takes_any_string"]
    report = check(ENV_ID, rules=rules, partner=live)
    report.raise_for_failures()
    outcomes = {result.rule: result.outcome for result in report.results}
    assert outcomes["snapshot_continues_alike"] == "not applicable"
    assert outcomes["groups_stay_together"] == outcomes["finished_copies_wait"] == "passed"


def test_no_task_starts_solved_and_the_expert_solves_most() -> None:
    for split in ("train", "valid_unseen"):
        proof = prove_tasks(SotopiaEnv, {}, split, limit=40)
        assert proof.trivial == [] and proof.repeated == []
        assert len(proof.unsolved) <= 0.1 * proof.tasks


def test_by_default_the_reward_is_the_score_given_once_at_the_end() -> None:
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


def test_names_make_partners_and_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(make_partner("small-talk"), SmallTalkPartner)
    assert isinstance(make_judge("none"), NoJudge)
    own = SmallTalkPartner()
    assert make_partner(own) is own
    # The text after the colon is passed on.
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    partner, judge = make_partner("chat:some-model"), make_judge("chat:some-judge")
    assert isinstance(partner, AgentPartner)
    assert partner.name.startswith("chat:some-model") and not partner.deterministic
    assert "some-judge" in judge.name and not judge.deterministic


@pytest.mark.parametrize(
    ("make", "which", "message"),
    [
        (make_partner, "smalltalk", "Did you mean 'small-talk'"),
        (make_partner, "small-talk:loud", "expected partner='small-talk', without an argument"),
        (make_partner, 3, "partner is an int: expected a name"),
        (make_judge, "chat", "'chat:<argument>'"),
        (make_judge, "rule", "judge='rule' is unknown"),
        (make_judge, object(), "judge is an object"),
    ],
)
def test_wrong_partners_and_judges_are_refused(make, which, message):
    with pytest.raises(ConfigError, match=message):
        make(which)
