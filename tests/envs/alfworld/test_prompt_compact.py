"""ALFWorld in a few words, and the actions to choose among."""

from __future__ import annotations

import random

import gymnasium as gym
import pytest

import creditrl  # noqa: F401 - registers the environments
from creditrl.agents.prompts import Ask, listed_actions
from creditrl.envs.alfworld.problem import FLAVOURS
from creditrl.envs.alfworld.prompt_compact import Goal, compact, read_goal

ALFWORLD_ID = "CreditRL/ALFWorld-v0"
ROOM = (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly "
    "around you, you see a countertop 1, a drawer 2, a drawer 1, a fridge 1, and a microwave 1.\n\n"
    "Your task is to: {task}."
)
HEAT = "heat some egg and put it in fridge"
COUNTER = "You arrive at countertop 1. On the countertop 1, you see a egg 2, a egg 1, and a mug 1."
TAKEN = "You pick up the egg 2 from the countertop 1."


def told(task, *observations, actions=()):
    """Return the compact text after these observations."""
    *past, last = (ROOM.format(task=task), *observations)
    return compact(Ask(last, task, actions, history=[(some, "") for some in past])).split("\n")


SENTENCES = """
put mug shelf: put a mug in shelf | put some mug on shelf
clean mug shelf: put a clean mug in shelf | clean some mug and put it in shelf.
heat mug shelf: put a hot mug in shelf | heat some mug and put it in shelf
cool mug shelf: put a cool mug in shelf | cool some mug and put it in shelf
two mug shelf: put two mug in shelf | find two mug and put them in shelf
look mug desklamp: look at mug under the desklamp | examine the mug with the desklamp
"""


@pytest.mark.parametrize("case", SENTENCES.strip().split("\n"))
def test_the_sentences_of_the_templates_are_read(case):
    goal, _, sentences = case.partition(": ")
    for sentence in sentences.split(" | "):
        assert read_goal(sentence) == Goal(*goal.split())
    assert read_goal("Make the kitchen nice.") == Goal("", "", "")


def test_at_first_the_room_is_told_as_unsearched():
    assert told(HEAT) == [
        "new countertop 1 drawer 2 drawer 1 microwave 1",
        "known nothing",
        "place fridge 1",
        "use microwave 1",
        "heat egg fridge",
        "hold nothing",
        "at start",
        "here nothing",
    ]


SEARCHED = ["countertop 1", "drawer 2", "drawer 1", "microwave 1"]
LAMP = "look at egg under the desklamp"
# What was observed, the first line, the last ones, and one of those between.
TOLD = {
    "places of the goal are searched last": (
        *(HEAT, [f"You arrive at {r}. On the {r}, you see nothing." for r in SEARCHED]),
        "new fridge 1",
        [],
        "",
    ),
    "what the goal needs is told when it is in reach": (
        HEAT,
        [COUNTER],
        "known nothing",
        ["at countertop 1", "here egg 2 egg 1"],
        "",
    ),
    "what was seen elsewhere is known": (
        HEAT,
        [COUNTER, TAKEN, "You arrive at microwave 1. The microwave 1 is closed."],
        "known egg 1 countertop 1",
        ["at microwave 1 closed", "here nothing"],
        "hold goal egg 2",
    ),
    "the hand tells what has become of its thing": (
        HEAT,
        [COUNTER, TAKEN, "You heat the egg 2 using the microwave 1."],
        "",
        [],
        "hold goal egg 2 hot",
    ),
    "a thing of another class is told apart, and the search goes on": (
        HEAT,
        [COUNTER, "You pick up the mug 1 from the countertop 1."],
        "new drawer 2 drawer 1 microwave 1",
        [],
        "hold other mug 1",
    ),
    "what is in place is counted and no longer wanted": (
        "put two egg in drawer",
        [COUNTER, TAKEN, "You move the egg 2 to the drawer 2."],
        "known nothing",
        ["here egg 1"],
        "done 1",
    ),
    "an untreated object in place is still wanted": (
        HEAT,
        [COUNTER, TAKEN, "You move the egg 2 to the fridge 1."],
        "known egg 2 fridge 1",
        ["here egg 1"],
        "",
    ),
    "the place where one stands comes first": (
        "put a egg in drawer",
        [COUNTER, TAKEN, "You arrive at drawer 1. The drawer 1 is closed."],
        "",
        [],
        "place drawer 1 drawer 2",
    ),
    "lamps are searched for": (LAMP, [COUNTER, TAKEN], "new drawer 2 drawer 1 fridge 1", [], ""),
    "lamps are told": (
        LAMP,
        [COUNTER, TAKEN, "You arrive at drawer 1. On the drawer 1, you see a desklamp 1."],
        "known egg 1 countertop 1",
        ["here desklamp 1"],
        "",
    ),
    "a failed command is told": (HEAT, ["Nothing happens."], "", ["failed"], ""),
    "a task in free words shows them and all things": (
        "Make the kitchen nice.",
        [COUNTER],
        "new drawer 2 drawer 1 fridge 1 microwave 1",
        ["here egg 2 egg 1 mug 1"],
        "Make the kitchen nice.",
    ),
}


@pytest.mark.parametrize("claim", TOLD)
def test_what_is_told(claim):
    task, observed, first, last, between = TOLD[claim]
    lines = told(task, *observed)
    assert lines[0].startswith(first) and lines[len(lines) - len(last) :] == last
    assert not between or between in lines


def test_what_the_list_offers_to_take_is_in_reach():
    # One place reaches both drawers, and only the one that was gone to is described.
    drawer = "You arrive at drawer 1. The drawer 1 is open. In it, you see nothing."
    assert told(HEAT, drawer, actions=("take egg 1 from drawer 2",))[-1] == "here egg 1"


def test_choices_leave_out_what_no_task_needs():
    actions = (
        "close fridge 1",
        "examine fridge 1",
        "go to drawer 1",
        "help",
        "inventory",
        "look",
        "open drawer 1",
        "slice egg 1 with knife 1",
        "take egg 1 from fridge 1",
    )
    ask = Ask("", admissible_actions=actions, env_id=ALFWORLD_ID)
    assert listed_actions(ask) == ("go to drawer 1", "open drawer 1", "take egg 1 from fridge 1")


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("size", ["small", "medium"])
def test_choices_hold_what_the_expert_does_also_after_random_actions(size, flavour):
    env = gym.make(ALFWORLD_ID, size=size, flavour=flavour)
    rng = random.Random(0)
    for seed in range(30):
        _, info = env.reset(seed=seed)
        over = False
        while not over and (plan := env.unwrapped.expert_plan()):
            actions = info["admissible_actions"]
            assert plan[0] in listed_actions(Ask("", "", actions, env_id=ALFWORLD_ID))
            action = rng.choice(actions) if rng.random() < 0.3 else plan[0]
            *_, terminated, truncated, info = env.step(action)
            over = terminated or truncated
