"""The engine: rewards, signals, snapshots and keys of many households side by side."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from households import Kitchen, kitchen_task

from creditrl.envs.alfworld import engine, rules, words
from creditrl.envs.alfworld.engine import CACHED_GAMES, ALFWorldEngine, load_game
from creditrl.envs.alfworld.game import Game
from creditrl.envs.alfworld.problem import FLAVOURS, Flavour, GameSource
from creditrl.envs.base import Copies
from creditrl.errors import ConfigError
from creditrl.types import Task

WIN = (
    *("go to countertop 1", "take apple 1 from countertop 1", "go to drawer 1"),
    *("open drawer 1", "move apple 1 to drawer 1"),
)


class Numbered(Kitchen):
    """One of many identical games; counts how often it is loaded."""

    def __init__(self, number: int, flavour: Flavour = "0.4") -> None:
        super().__init__(flavour=flavour)
        self.number = number
        self.loads = 0

    @property
    def key(self) -> str:
        return f"{super().key}/{self.number}"

    def load(self) -> Game:
        self.loads += 1
        return super().load()


class Kitchens:
    """Copies of the kitchen, stepped with one action for all or one each."""

    def __init__(self, num_envs: int = 1, task: Task | None = None, **options: Any) -> None:
        self.engine = ALFWorldEngine(num_envs, **options)
        self.copies = Copies(self.engine, "CreditRL/ALFWorld-v0", 50)
        self.all = self.engine.every
        self.task = task or kitchen_task()
        self.frame = self.copies.begin(self.all, [self.task] * num_envs, [0] * num_envs)

    def step(self, *actions: str) -> Any:
        said = list(actions) * (len(self.all) if len(actions) == 1 else 1)
        self.frame = self.copies.step(self.all, said)
        return self.frame


def test_reaching_the_goal_gives_reward_1_and_ends_the_episode() -> None:
    kitchen = Kitchens()
    for action in WIN[:-1]:
        frame = kitchen.step(action)
        assert (frame.reward_K[0], frame.terminated_K[0], frame.info["score"][0]) == (0, False, 0)
    frame = kitchen.step(WIN[-1])
    assert (frame.reward_K[0], frame.terminated_K[0]) == (1, True)
    assert (frame.info["success"][0], frame.info["score"][0]) == (True, 1.0)
    assert frame.text == ["You move the apple 1 to the drawer 1."]


def test_a_failed_command_changes_nothing_and_gives_the_reason() -> None:
    kitchen = Kitchens()
    key = kitchen.engine.state_keys(kitchen.all, "state")
    frame = kitchen.step("open fridge 1")
    assert frame.text == ["Nothing happens."]
    assert not frame.info["grounded"][0]
    assert frame.info["ungrounded_reason"][0] == "inapplicable"
    assert frame.info["unmet"][0] == ("atLocation(fridge 1)",)
    assert frame.info["turn"][0] == 1
    assert kitchen.engine.state_keys(kitchen.all, "state") == key
    # Spaces around a command do not matter, case does.
    frame = kitchen.step("  go to fridge 1\n")
    assert (frame.info["unmet"][0], frame.info["action"][0]) == ((), "go to fridge 1")
    assert kitchen.step("Open fridge 1").info["ungrounded_reason"][0] == "unparsed"


def test_state_keys_include_examined_objects_only_on_request() -> None:
    for keep, equal in ((False, True), (True, False)):
        kitchen = Kitchens(keep_checked=keep)
        before = kitchen.engine.state_keys(kitchen.all, "state")
        kitchen.step("look")
        assert (kitchen.engine.state_keys(kitchen.all, "state") == before) is equal
        assert len(set(kitchen.engine.state_keys(kitchen.all, "world"))) == 1


def test_cached_games_are_loaded_once_and_evicted_ones_again() -> None:
    first = Numbered(1)
    assert load_game(first) is load_game(Numbered(1))
    kitchen = Kitchens(3, Task("first", "", "train", 0, data=first))
    texts = kitchen.step(WIN[0], "go to drawer 1", "sing").text
    # Copies share their game but not their states.
    assert [text[:27] for text in texts[1:]] == ["You arrive at drawer 1. The", "Nothing happens."]
    for action in WIN[1:3]:
        kitchen.step(action)
    saved = kitchen.copies.snapshot(kitchen.all)
    for number in range(CACHED_GAMES):
        load_game(Numbered(2 + number))
    assert first.loads == 1
    for action in WIN[3:]:  # a game in play stays loaded
        frame = kitchen.step(action)
    assert frame.info["success"][0] and first.loads == 1
    other = Kitchens(3)
    other.copies.restore(other.all, saved)
    assert first.loads == 2
    for action in WIN[3:]:
        frame = other.step(action)
    assert frame.info["success"][0]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_size_of_caches_does_not_change_observations(monkeypatch, flavour):
    def walk(source: GameSource) -> list[Any]:
        kitchen, dice = Kitchens(task=Task("walk", "", "train", 0, data=source)), Random(3)
        shown = []
        for _ in range(60):
            frame = kitchen.frame
            if kitchen.copies.over[0]:
                frame = kitchen.frame = kitchen.copies.begin(kitchen.all, [kitchen.task], [0])
            offered = frame.info["admissible_actions"][0]
            shown.append((frame.text, offered, kitchen.engine.expert_action(0)))
            kitchen.step(dice.choice(offered))
        return shown

    remembered = walk(Numbered(-1, flavour))
    for module in (rules, words, engine):
        monkeypatch.setattr(module, "MEMO_SIZE", 1)
    assert walk(Numbered(-2, flavour)) == remembered


def test_a_task_without_a_game_is_refused_and_no_copy_changes() -> None:
    kitchen = Kitchens(2)
    kitchen.step("go to fridge 1")
    for data in (None, "game.tw-pddl"):
        tasks = [kitchen_task(), Task("strange", "", "train", 0, data=data)]
        with pytest.raises(ConfigError, match=r"Task 'strange' holds \w+ data: .* a GameSource"):
            kitchen.copies.begin(kitchen.all, tasks, [0, 0])
        assert kitchen.copies.frame(kitchen.all).text == kitchen.frame.text
    assert kitchen.step("open fridge 1").info["grounded"].all()
