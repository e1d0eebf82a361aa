"""Proofs that tasks can be solved, and how they fail."""

from __future__ import annotations

from dataclasses import replace

import pytest
from households import Kitchen

from creditrl.bench.tasks import Proof, length_line, prove_tasks
from creditrl.cli import run
from creditrl.envs.alfworld.engine import ALFWorldEngine
from creditrl.envs.alfworld.env import ALFWorldConfig, ALFWorldEnv
from creditrl.envs.alfworld.problem import Goal
from creditrl.envs.base import EnvParts
from creditrl.envs.tasks import TaskList
from creditrl.envs.webshop.env import WebShopConfig, WebShopEnv
from creditrl.errors import ConfigError
from creditrl.types import Task

GOALS = {
    "fine": Goal("pick_and_place_simple", "apple", "drawer"),
    "again": Goal("pick_and_place_simple", "apple", "drawer"),
    "done": Goal("pick_and_place_simple", "apple", "fridge"),
    "impossible": Goal("pick_and_place_simple", "sofa", "drawer"),
}


class Kitchens(ALFWorldEnv):
    """The kitchen with goals of all types in train, and only impossible ones elsewhere."""

    @classmethod
    def build(cls, config: ALFWorldConfig, num_envs: int) -> EnvParts:
        names = list(GOALS) if config.split == "train" else ["impossible"]
        tasks = [
            Task(name, "place", config.split, i, data=Kitchen(GOALS[name]))
            for i, name in enumerate(names)
        ]
        return EnvParts(ALFWorldEngine(num_envs), TaskList(tasks), 50)


def test_a_proof_lists_unsolved_trivial_and_duplicate_tasks():
    told: list[tuple[int, int]] = []
    proof = prove_tasks(Kitchens, {}, "train", on_task=lambda *at: told.append(at))
    assert not proof.holds and proof.tasks == 4
    assert (proof.unsolved, proof.trivial, proof.repeated) == (["impossible"], ["done"], ["again"])
    # go to countertop, take, go to drawer, open, move; nothing at all where it is done.
    assert dict(proof.lengths) == {"place": [5, 5, 0]}
    assert length_line(proof.lengths["place"]) == "0 / 5 / 5"
    assert (proof.actions, proof.unlisted) == (10, [])
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert prove_tasks(Kitchens, {}, "train", limit=1).holds


def test_without_an_expert_nothing_is_proved():
    with pytest.raises(ConfigError, match="finishes none of 1 tasks of valid_seen"):
        prove_tasks(Kitchens, {}, "valid_seen")


class Shop(WebShopEnv):
    """A small shop with two goals; no product meets the second."""

    @classmethod
    def build(cls, config: WebShopConfig, num_envs: int) -> EnvParts:
        parts = super().build(config, num_envs)
        fine = parts.tasks.task(0)
        goal = replace(fine.data, attributes=(*fine.data.attributes, "beyond all hope"))
        return replace(parts, tasks=TaskList([fine, replace(fine, id="hopeless", data=goal)]))


def test_an_episode_that_ends_without_success_proves_nothing():
    # The expert buys the best product; that ends the episode with less than 1.
    proof = prove_tasks(Shop, {"num_products": 100}, "train")
    assert proof.unsolved == ["hopeless"] and not proof.trivial
    assert proof.types() == {"synthetic": 1}


@pytest.mark.parametrize("name", ["ALFWorld", "VisualSokoban", "WebShop"])
def test_the_command_proves_builtin_tasks(name, capsys):
    assert run(["bench", "tasks", name, "--splits", "valid_unseen", "--limit", "12"]) == 0
    out = capsys.readouterr().out
    assert "valid_unseen: 12 tasks, 0 unsolved, 0 done before they begin" in out


def test_with_a_partner_that_decides_half_of_the_tasks_suffice():
    two = ["one", "two"]
    assert Proof("train", always=False, tasks=4, unsolved=two).holds
    assert not Proof("train", tasks=4, unsolved=two).holds
    assert not Proof("train", always=False, tasks=3, unsolved=two).holds
    assert not Proof("train", always=False, tasks=4, trivial=["done"]).holds
