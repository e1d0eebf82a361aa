"""Facts read from ALFWorld observations: each kind, and whole episodes against the truth."""

from __future__ import annotations

import random

import gymnasium as gym
import pytest

import creditrl  # noqa: F401 - registers the environments
from creditrl.envs.alfworld.game import NOTHING, bits
from creditrl.envs.alfworld.problem import FLAVOURS
from creditrl.envs.alfworld.prompt_memory import glimpse, remember

ROOM = (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly "
    "around you, you see a drawer 2, a drawer 1, and a fridge 1.\n\n"
    "Your task is to: put a mug in drawer."
)
AT_FRIDGE = "You arrive at fridge 1. The fridge 1 is closed."
OPENED = "You open the fridge 1. The fridge 1 is open. In it, you see a mug 2, and a egg 1."


def test_the_room_tells_its_receptacles_in_their_order():
    assert remember([ROOM]).around == ("drawer 2", "drawer 1", "fridge 1")


@pytest.mark.parametrize("place", ["fridge 1", "loc 12"])
def test_one_stands_at_the_receptacle_that_an_arrival_describes(place):
    assert remember([ROOM, f"You arrive at {place}. The fridge 1 is closed."]).at == "fridge 1"


def test_a_closed_receptacle_is_not_searched():
    memory = remember([ROOM, AT_FRIDGE])
    assert (memory.closed, memory.searched) == ({"fridge 1"}, set())


def test_an_open_one_tells_what_is_in_it():
    memory = remember([ROOM, AT_FRIDGE, OPENED])
    assert (memory.closed, memory.searched) == (set(), {"fridge 1"})
    assert memory.where == {"mug 2": "fridge 1", "egg 1": "fridge 1"}


def test_a_receptacle_with_nothing_in_it_is_searched():
    memory = remember(
        [ROOM, "You arrive at drawer 1. The drawer 1 is open. In it, you see nothing."]
    )
    assert (memory.searched, memory.where) == ({"drawer 1"}, {})


def test_what_is_taken_is_held_and_lies_nowhere():
    memory = remember([ROOM, OPENED, "You pick up the egg 1 from the fridge 1."])
    assert (memory.held, memory.where) == ("egg 1", {"mug 2": "fridge 1"})


@pytest.mark.parametrize(
    "deed", ["move the egg 1 to the drawer 2", "put the egg 1 in/on the drawer 2"]
)
def test_what_is_put_lies_there_in_both_flavours(deed):
    memory = remember(["You pick up the egg 1 from the fridge 1.", f"You {deed}."])
    assert (memory.held, memory.where) == ("", {"egg 1": "drawer 2"})


@pytest.mark.parametrize(
    ("deed", "state", "clean"),
    [
        ("heat the egg 1 using the microwave 1", {"egg 1": "hot"}, set()),
        ("cool the egg 1 using the fridge 1", {"egg 1": "cool"}, set()),
        ("clean the egg 1 using the sinkbasin 1", {}, {"egg 1"}),
    ],
)
def test_a_treatment_is_remembered(deed, state, clean):
    memory = remember([f"You {deed}."])
    assert (memory.state, memory.clean) == (state, clean)


def test_closing_a_receptacle_keeps_what_was_seen_in_it():
    memory = remember([ROOM, OPENED, "You close the fridge 1."])
    assert memory.closed == {"fridge 1"}
    assert memory.where["egg 1"] == "fridge 1"


@pytest.mark.parametrize(
    "observation",
    [
        "You are carrying: a egg 1.",
        "You are facing the drawer 2, and drawer 1. Next to it, you see a egg 1.",
        "This is a normal bowl 1. In it, you see a egg 1.",
        "There's nothing special about egg 1.",
        "This is a hot egg 1.",
    ],
)
def test_what_only_repeats_changes_nothing(observation):
    assert remember([ROOM, AT_FRIDGE, observation]) == remember([ROOM, AT_FRIDGE])


def test_a_command_that_failed_is_told_until_the_next_one():
    assert glimpse("Nothing happens.").failed
    assert remember([ROOM, "Nothing happens."]).failed
    assert not remember([ROOM, "Nothing happens.", AT_FRIDGE]).failed


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_memory_of_random_episodes_agrees_with_the_households(flavour):
    env = gym.make("CreditRL/ALFWorld-v0", size="small", closed=0.5, flavour=flavour)
    rng = random.Random(0)
    for seed in range(20):
        observation, info = env.reset(seed=seed)
        told = [observation]
        for _ in range(49):
            likely = [a for a in info["admissible_actions"] if not a.startswith("go to ")]
            action = rng.choice(rng.choice([likely, info["admissible_actions"]]))
            observation, _, terminated, truncated, info = env.step(action)
            told.append(observation)
            memory = remember(told)
            engine = env.unwrapped.copies.engine
            game, state = engine._games[0], engine._copies[0].state
            names = game.object_names
            held = "" if state.held == NOTHING else names[state.held]
            assert memory.held == held
            contents = {
                names[o]: game.receptacle_names[r]
                for r, inside in enumerate(state.contents)
                for o in bits(inside)
            }
            assert memory.where.items() <= contents.items()
            shut = game.openable & ~state.opened
            assert memory.closed <= {game.receptacle_names[r] for r in bits(shut)}
            if memory.at:
                here = game.receptacle_names.index(memory.at)
                assert game.location_of[here] == state.location
            if terminated or truncated:
                break
