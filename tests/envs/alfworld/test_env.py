"""ALFWorld through Gymnasium: its options, and official games in their layout."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from alfworld_files import unpack_sample
from alfworld_twins import prepare, run_twin, twins
from households import Kitchen, kitchen, kitchen_task

import creditrl
from creditrl.envs.alfworld.env import ALFWorldConfig
from creditrl.envs.alfworld.game import Game, compile_game
from creditrl.envs.alfworld.problem import TASK_TYPES

ENV_ID = "CreditRL/ALFWorld-v0"


class Lair(Kitchen):
    """The kitchen, with no place to put down a knife."""

    @property
    def key(self) -> str:
        return f"lair/{super().key}"

    def load(self) -> Game:
        problem = kitchen(self.goal)
        fits = tuple(pair for pair in problem.facts["cancontain"] if pair[1] != "knifetype")
        facts = {**problem.facts, "cancontain": fits}
        return compile_game(replace(problem, facts=facts), "put a apple in drawer", self.flavour)


def test_the_expert_has_no_plan_in_a_dead_end() -> None:
    task = replace(kitchen_task(), data=Lair())
    venv = gym.make_vec(ENV_ID, num_envs=2, task=task)
    venv.reset(seed=0)
    for actions in (["go to countertop 1"] * 2, ["take knife 1 from countertop 1", "look"]):
        info = venv.step(actions)[4]
    assert info["grounded"].all() and info["admissible_actions"][0]
    stuck, free = creditrl.expert_plan(venv)
    assert stuck is None and creditrl.expert_action(venv)[0] is None
    assert free is not None and free[0] == "take apple 1 from countertop 1"


@pytest.mark.filterwarnings("ignore::creditrl.errors.IncompleteDataWarning")
def test_the_readmes_twin_of_alfredtwenv_plays_each_game_once(test_data, tmp_path, monkeypatch):
    games = prepare(test_data, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    monkeypatch.delenv("CREDITRL_ALFWORLD_DATA", raising=False)
    names, _, said = run_twin(twins()[1], monkeypatch)
    assert len(games) == 6 and names["won"].keys() == games.keys()
    assert all(names["won"][game] for game, known in games.items() if known)
    assert said.strip() == f"{sum(names['won'].values())} of 6 games won"


@pytest.mark.parametrize("kind", TASK_TYPES)
def test_task_types_can_be_selected(kind: str) -> None:
    env = gym.make(ENV_ID, task_types=kind, split="valid_unseen")
    assert {env.reset(seed=seed)[1]["task_type"] for seed in range(4)} == {kind}


def test_the_goal_can_be_an_annotators_wording(test_data: Path, tmp_path: Path) -> None:
    official = unpack_sample(test_data, tmp_path)

    def goal(**options: Any) -> tuple[str, str]:
        env = gym.make(ENV_ID, data="official", data_dir=official, **options)
        text, info = env.reset(options={"task": 0})
        return text, info["goal"]

    text, template = goal()
    assert text.endswith(f"Your task is to: {template}.")
    text, human = goal(annotation=0)
    assert human != template and human.rstrip(".") in text


def test_equivalent_options_are_equal():
    both = "pick_and_place_simple", "pick_two_obj_and_place"
    made = ALFWorldConfig(task_types=both)
    for types in ([*both], both[::-1], {*both}, both * 2):
        assert ALFWorldConfig(task_types=types) == made
    # Equal settings give equal households in every process, in whatever order they are made.
    ids = {ALFWorldConfig(closed=share).tasks().task(0).id for share in (0, 0.0, -0.0)}
    assert ids == {"builtin-closed0.0/train/0"}


def test_the_page_quotes_the_goal_of_its_first_game() -> None:
    page = (Path(__file__).parents[3] / "docs/environments/ALFWorld.md").read_text("utf-8")
    (said,) = re.findall(r"print\(observation\)  # \.\.\. (Your task is to: .*)", page)
    env = gym.make(ENV_ID, split="valid_unseen", task_types="pick_heat_then_place_in_recep")
    assert env.reset(seed=7)[0].endswith(said)
