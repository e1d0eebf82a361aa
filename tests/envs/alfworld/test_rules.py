"""The kitchen by hand: commands, texts, goals, and reasons of failure."""

from __future__ import annotations

import random

import pytest
from households import after, kitchen_game, played

from creditrl.envs.alfworld.game import Game, State, display_names, state_key
from creditrl.envs.alfworld.problem import TASK_TYPES, Goal
from creditrl.envs.alfworld.reasons import why_not
from creditrl.envs.alfworld.rules import apply, choices, goal_status, may_change_status
from creditrl.envs.alfworld.words import intro


def said(game: Game, commands: str) -> str:
    return played(game, commands)[1]


def test_names_count_down_in_the_order_of_ids() -> None:
    shown = display_names(["apple_bar_2", "apple_bar_1", "sink_bar_1_bar_sinkbasin", "mugtype"])
    assert shown == {
        "apple_bar_1": "apple 2",
        "apple_bar_2": "apple 1",
        "sink_bar_1_bar_sinkbasin": "sinkbasin 1",
        "mugtype": "mugtype",
    }


def test_the_intro_names_all_receptacles_and_the_task() -> None:
    game = kitchen_game()
    assert intro(game, game.start) == (
        "-= Welcome to TextWorld, ALFRED! =-\n\n"
        "You are in the middle of a room. Looking quickly around you, you see a countertop 1, "
        "a drawer 2, a drawer 1, a fridge 1, a microwave 1, a sidetable 1, and a sinkbasin 1.\n\n"
        "Your task is to: put a apple in drawer."
    )


def test_the_commands_at_the_start_are_sorted() -> None:
    game = kitchen_game()
    assert choices(game, game.start).commands == (
        *("go to countertop 1", "go to drawer 1", "go to drawer 2", "go to fridge 1"),
        *("go to microwave 1", "go to sidetable 1", "go to sinkbasin 1", "help", "inventory"),
        "look",
    )
    old = kitchen_game(flavour="0.3")
    assert "help" not in choices(old, old.start).commands


MUG = "go to countertop 1; take mug 1 from countertop 1; "
MOVED = MUG + "go to drawer 1; open drawer 1; open drawer 2; move mug 1 to drawer 1; "
ON = MOVED + "take mug 1 from drawer 1; move mug 1 to drawer 2; "
APPLE = "go to countertop 1; take apple 1 from countertop 1; "
CLEAN = APPLE + "go to sinkbasin 1; clean apple 1 with sinkbasin 1; "
HOT = CLEAN + "go to microwave 1; heat apple 1 with microwave 1; "
COOLED = HOT + "go to fridge 1; cool apple 1 with fridge 1; "
SLICED = "go to countertop 1; take knife 1 from countertop 1; slice apple 1 with knife 1; "
SEES_NOTHING = "You are facing the drawer 2, and drawer 1. Next to it, you see nothing."


@pytest.mark.parametrize(
    ("commands", "text"),
    [
        # A second look at the start shows nothing new.
        ("look", "You are in the middle of a room. Looking quickly around you, you see nothing."),
        (
            "go to countertop 1",
            "You arrive at countertop 1. "
            "On the countertop 1, you see a apple 1, a knife 1, and a mug 1.",
        ),
        ("go to fridge 1", "You arrive at fridge 1. The fridge 1 is closed."),
        (
            "go to fridge 1; open fridge 1",
            "You open the fridge 1. The fridge 1 is open. In it, you see a apple 2.",
        ),
        ("go to fridge 1; open fridge 1; close fridge 1", "You close the fridge 1."),
        ("go to sinkbasin 1; examine sinkbasin 1", "On the sinkbasin 1, you see nothing."),
        ("inventory", "You are not carrying anything."),
        (MUG, "You pick up the mug 1 from the countertop 1."),
        (MUG + "inventory", "You are carrying: a mug 1."),
        (MUG + "examine mug 1", "There's nothing special about mug 1."),
        # Look remembers removed objects: in drawer 2 now, and "next to" drawer 1 since then.
        (MOVED + "look", SEES_NOTHING),
        (ON + "look", SEES_NOTHING.replace("nothing", "a mug 1")),
        (
            ON + "take mug 1 from drawer 2; move mug 1 to drawer 1; look",
            SEES_NOTHING.replace("nothing", "a mug 1"),
        ),
        # Treatments need no open door and change an object's description.
        (CLEAN + "examine apple 1", "This is a clean apple 1."),
        (HOT, "You heat the apple 1 using the microwave 1."),
        (HOT + "examine apple 1", "This is a hot and clean apple 1."),
        (COOLED + "examine apple 1", "This is a cool and clean apple 1."),
        (MUG + "go to fridge 1; cool mug 1 with fridge 1; examine mug 1", "This is a cold mug 1."),
        (SLICED, "You sliced the apple 1 with the knife 1."),
        (
            f"{SLICED}move knife 1 to countertop 1; {APPLE.partition('; ')[2]}examine apple 1",
            "This is a sliced apple 1.",
        ),
        # A lamp is always turned on.
        ("go to sidetable 1; use desklamp 1", "You turn on the desklamp 1."),
        ("go to sidetable 1; use desklamp 1; use desklamp 1", "You turn on the desklamp 1."),
    ],
)
def test_texts_after_commands_by_hand(commands: str, text: str) -> None:
    assert said(kitchen_game(), commands) == text


def test_the_old_flavour_names_locations_and_uses_put() -> None:
    game = kitchen_game(flavour="0.3")
    # Seven places count down: the first of the ids is loc 7.
    assert said(game, MUG + "go to sinkbasin 1") == (
        "You arrive at loc 2. On the sinkbasin 1, you see nothing."
    )
    assert said(game, MUG + "go to sinkbasin 1; put mug 1 in/on sinkbasin 1") == (
        "You put the mug 1 in/on the sinkbasin 1."
    )


def test_admissible_commands_depend_on_the_place_and_the_held_object() -> None:
    game = kitchen_game()
    at_drawer, at_counter, holding = (
        set(choices(game, after(game, commands)).commands)
        for commands in ("go to drawer 1", "go to countertop 1", MUG)
    )
    # Two drawers share their place.
    assert not {"go to drawer 1", "go to drawer 2"} & at_drawer
    assert {"examine drawer 2", "open drawer 1", "open drawer 2"} <= at_drawer
    # The agent holds one object, and only that can be examined.
    assert "examine mug 1" not in at_counter and "take apple 1 from countertop 1" not in holding
    assert {"examine mug 1", "move mug 1 to countertop 1"} <= holding


def test_later_treatments_undo_earlier_ones_but_a_lamp_stays_on() -> None:
    cooled = after(kitchen_game(), COOLED)
    assert not cooled.hot and cooled.cool
    lit = after(kitchen_game(), "go to sidetable 1; use desklamp 1; use desklamp 1")
    assert (lit.on, lit.toggled.bit_count()) == (0, 1)


HEAT = "pick_heat_then_place_in_recep"
LIT = ("look_at_obj_in_light", "mug", "", "desklamp")


@pytest.mark.parametrize(
    ("goal", "commands", "status"),
    [
        (("pick_and_place_simple", "apple", "fridge"), "", (1, 1)),
        (("pick_and_place_simple", "apple", "drawer"), "", (0, 1)),
        (("pick_two_obj_and_place", "apple", "fridge"), "", (1, 2)),
        (
            ("pick_two_obj_and_place", "apple", "fridge"),
            APPLE + "go to fridge 1; open fridge 1; move apple 1 to fridge 1",
            (2, 2),
        ),
        # An apple lies in the fridge, but the clean one is another.
        (
            ("pick_clean_then_place_in_recep", "apple", "fridge"),
            APPLE + "go to sinkbasin 1; clean apple 1 with sinkbasin 1",
            (2, 3),
        ),
        (
            (HEAT, "apple", "sidetable"),
            APPLE + "go to microwave 1; heat apple 1 with microwave 1; "
            "go to sidetable 1; move apple 1 to sidetable 1",
            (3, 3),
        ),
        (LIT, "", (0, 2)),
        (LIT, MUG + "go to sidetable 1; use desklamp 1", (2, 2)),
        # The lamp is on, but the agent has left its place.
        (LIT, "go to sidetable 1; use desklamp 1; " + MUG, (1, 2)),
    ],
)
def test_the_goal_counts_its_conditions(goal, commands, status):
    game = kitchen_game(Goal(*goal))
    state = after(game, commands)
    assert goal_status(game, state) == status


@pytest.mark.parametrize("goal_type", TASK_TYPES)
def test_moves_that_cannot_change_the_goals_status_do_not(goal_type: str) -> None:
    goal = Goal(goal_type, "apple", "drawer", lamp="desklamp")
    game = kitchen_game(goal=goal)
    rng = random.Random(0)
    state = game.start
    for _ in range(300):
        move = rng.choice(list(choices(game, state).moves.values()))
        before, state = state, apply(game, state, move)
        if not may_change_status(game, move):
            assert goal_status(game, state) == goal_status(game, before)


def cannot(*unmet: str) -> tuple[str, tuple[str, ...]]:
    return "inapplicable", unmet


UNPARSED, UNKNOWN = ("unparsed", ()), ("unknown", ())


@pytest.mark.parametrize(
    ("commands", "asked", "why"),
    [
        ("", "dance", UNPARSED),
        ("", "go to\nfridge 1", UNPARSED),
        # A model that repeats itself must not hold up the others: this used to take half a minute.
        pytest.param("", "clean " + "mug 1 with " * 30_000 + "\nmug 1", UNPARSED, id="long"),
        pytest.param("", "clean " + "mug 1 with " * 30_000 + "mug 1", UNKNOWN, id="longer"),
        ("", "go to cellar 1", UNKNOWN),
        ("", "take mug 7 from drawer 1", UNKNOWN),
        ("", "open mug 1", cannot("receptacle(mug 1)")),
        ("go to drawer 1", "go to drawer 2", cannot("not atLocation(drawer 2)")),
        ("", "open fridge 1", cannot("atLocation(fridge 1)")),
        ("go to fridge 1; open fridge 1", "open fridge 1", cannot("not opened(fridge 1)")),
        ("go to countertop 1", "open countertop 1", cannot("openable(countertop 1)")),
        ("go to fridge 1", "take apple 2 from fridge 1", cannot("opened(fridge 1)")),
        (
            "go to sidetable 1",
            "take desklamp 1 from sidetable 1",
            cannot("pickupable(desklamp 1)"),
        ),
        (
            MUG,
            "take apple 2 from countertop 1",
            cannot("inReceptacle(apple 2, countertop 1)", "not holdsAny"),
        ),
        (
            APPLE.replace("apple", "knife") + "go to microwave 1",
            "move knife 1 to microwave 1",
            cannot("opened(microwave 1)", "canContain(microwave, knife)"),
        ),
        ("", "examine mug 1", cannot("holds(mug 1)")),
        ("", "use desklamp 1", cannot("atLocation(desklamp 1)")),
        (
            "go to sinkbasin 1",
            "heat mug 1 with sinkbasin 1",
            cannot("receptacleType(sinkbasin 1, microwave)", "holds(mug 1)"),
        ),
        (
            "go to countertop 1",
            "slice mug 1 with knife 1",
            cannot("sliceable(mug 1)", "holds(knife 1)"),
        ),
    ],
)
def test_a_failed_command_gives_its_reason(commands, asked, why):
    game = kitchen_game()
    state = after(game, commands)
    assert asked not in choices(game, state).moves
    assert why_not(game, state, asked) == why


def test_every_failing_command_of_the_domain_names_a_condition() -> None:
    game = kitchen_game()
    state = after(game, MUG)
    possible = choices(game, state).moves
    things, places = game.object_names, game.receptacle_names
    forms = [f"{verb} {r}" for verb in ("go to", "open", "close", "examine") for r in places]
    forms += [f"{verb} {o}" for verb in ("examine", "use") for o in things]
    forms += [f"take {o} from {r}" for o in things for r in places]
    forms += [f"move {o} to {r}" for o in things for r in places]
    forms += [
        f"{v} {o} with {r}" for v in ("clean", "heat", "cool") for o in things for r in places
    ]
    forms += [f"slice {o} with {k}" for o in things for k in things]
    for asked in forms:
        if asked not in possible:
            reason, unmet = why_not(game, state, asked)
            assert reason == "inapplicable" and unmet, asked
    assert set(possible) - {"look", "inventory", "help"} <= set(forms)


def test_state_keys_leave_out_the_documented_parts() -> None:
    game = kitchen_game()
    looked, moved = after(game, "look"), after(game, "go to countertop 1")
    put_back = after(game, "take mug 1 from countertop 1; move mug 1 to countertop 1", moved)
    swapped = after(game, ON)
    direct = after(game, MOVED.replace("move mug 1 to drawer 1", "move mug 1 to drawer 2"))

    def keys(state: State, of: Game = game) -> tuple[bytes, bytes, bytes]:
        return (
            state_key(of, state, goal=False, checked=False),
            state_key(of, state, goal=True, checked=False),
            state_key(of, state, goal=True, checked=True),
        )

    world, full, exact = keys(game.start)
    assert keys(looked)[:2] == (world, full) and keys(looked)[2] != exact
    assert keys(moved)[0] != world
    assert keys(put_back) == keys(moved)
    # The earlier place decides what ``look`` prints, but nothing in the world.
    assert keys(swapped)[0] == keys(direct)[0] and keys(swapped)[1] != keys(direct)[1]
    other = kitchen_game(Goal("pick_and_place_simple", "mug", "drawer"))
    assert keys(other.start, other)[0] == world and keys(other.start, other)[1] != full
