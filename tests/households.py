"""A kitchen small enough to work out by hand, for tests of ALFWorld."""

from __future__ import annotations

from collections.abc import Sequence

from creditrl.envs.alfworld.game import Game, State, compile_game
from creditrl.envs.alfworld.problem import Flavour, GameSource, Goal, Problem
from creditrl.envs.alfworld.rules import apply, choices
from creditrl.envs.alfworld.words import feedback
from creditrl.types import Task

_OPENABLE = ("fridge", "microwave", "drawer")
_FOOD = ("apple",)


Facts = dict[str, tuple[tuple[str, ...], ...]]


def kind(name: str) -> str:
    return "sinkbasin" if "sinkbasin" in name else name.partition("_bar_")[0]


def facts_of(
    start: str, places: dict[str, str], inside: dict[str, str], openable: Sequence[str]
) -> Facts:
    """Return where receptacles and things are, and of which kinds."""
    return {
        "atlocation": (("agent1", start),),
        "receptacleatlocation": tuple(places.items()),
        "receptacletype": tuple((name, f"{kind(name)}type") for name in places),
        "objecttype": tuple((name, f"{kind(name)}type") for name in inside),
        "inreceptacle": tuple(inside.items()),
        "objectatlocation": tuple((name, places[holder]) for name, holder in inside.items()),
        "openable": tuple((name,) for name in places if kind(name) in openable),
    }


def kitchen(goal: Goal | None = None) -> Problem:
    """Return a kitchen with two drawers at one place.

    Ids sort as they are numbered here, and names count down: ``apple_bar_1`` is ``apple 2`` (in the
    closed fridge), ``apple_bar_2`` is ``apple 1`` (on the countertop, beside ``knife 1`` and
    ``mug 1``); ``drawer_bar_1`` is ``drawer 2``. A lamp stands on the sidetable.
    """
    places = {
        "countertop_bar_1": "loc_bar_1",
        "drawer_bar_1": "loc_bar_2",
        "drawer_bar_2": "loc_bar_2",
        "fridge_bar_1": "loc_bar_3",
        "microwave_bar_1": "loc_bar_4",
        "sidetable_bar_1": "loc_bar_5",
        "sink_bar_1_bar_sinkbasin": "loc_bar_6",
    }
    inside = {
        "apple_bar_1": "fridge_bar_1",
        "apple_bar_2": "countertop_bar_1",
        "knife_bar_1": "countertop_bar_1",
        "mug_bar_1": "countertop_bar_1",
        "desklamp_bar_1": "sidetable_bar_1",
    }

    movable = tuple(name for name in inside if not name.startswith("desklamp"))
    facts = {
        **facts_of("loc_bar_7", places, inside, _OPENABLE),
        "pickupable": tuple((name,) for name in movable),
        "toggleable": (("desklamp_bar_1",),),
        "heatable": tuple((name,) for name in inside if kind(name) in (*_FOOD, "mug")),
        "coolable": tuple((name,) for name in inside if kind(name) in (*_FOOD, "mug")),
        "cleanable": tuple((name,) for name in movable),
        "sliceable": tuple((name,) for name in inside if kind(name) in _FOOD),
        "cancontain": tuple(
            (f"{holder}type", f"{thing}type")
            for holder in sorted({kind(name) for name in places})
            for thing in ("apple", "knife", "mug")
            if (holder, thing) != ("microwave", "knife")
        ),
    }
    return Problem(
        name="kitchen",
        agent="agent1",
        objects=tuple(inside),
        receptacles=tuple(places),
        locations=tuple(f"loc_bar_{i}" for i in range(1, 8)),
        facts=facts,
        goal=goal or Goal("pick_and_place_simple", "apple", "drawer"),
    )


def kitchen_game(
    goal: Goal | None = None, goal_text: str = "put a apple in drawer", flavour: Flavour = "0.4"
) -> Game:
    """Return the kitchen, compiled."""
    return compile_game(kitchen(goal), goal_text, flavour)


def played(game: Game, commands: str, state: State | None = None) -> tuple[State, str]:
    """Do commands, separated by "; " and all admissible; return the state and the last text."""
    state, said = state or game.start, ""
    for command in filter(None, commands.split("; ")):
        move = choices(game, state).moves[command]
        state = apply(game, state, move)
        said = feedback(game, state, move)
    return state, said


def after(game: Game, commands: str, state: State | None = None) -> State:
    """Return the state after such commands."""
    return played(game, commands, state)[0]


class Kitchen(GameSource):
    """The kitchen as the data of a task."""

    def __init__(self, goal: Goal | None = None, flavour: Flavour = "0.4") -> None:
        self.goal, self.flavour = goal, flavour

    @property
    def key(self) -> str:
        return f"kitchen/{self.goal}/{self.flavour}"

    def load(self) -> Game:
        return kitchen_game(self.goal, flavour=self.flavour)


def kitchen_task(goal: Goal | None = None, flavour: Flavour = "0.4") -> Task:
    """Return a task that is played in the kitchen."""
    return Task("kitchen", "pick_and_place_simple", "train", 0, data=Kitchen(goal, flavour))
