"""Sub-goal that a turn serves, read off the state before it and what was done.

Source: the household rule of HISR's segmenter: a segment ends where the target or the phase
(search, manipulate, navigate, place) changes, and trying again stays in it.
"""

from __future__ import annotations

from creditrl.envs.alfworld.game import Game, State
from creditrl.envs.alfworld.rules import Kind, Move

__all__ = ["segment"]

_MANIPULATIONS = {
    Kind.TAKE: "take",
    Kind.PUT: "put",
    Kind.USE: "use",
    Kind.CLEAN: "clean",
    Kind.HEAT: "heat",
    Kind.COOL: "cool",
    Kind.SLICE: "slice",
}


def segment(game: Game, before: State, move: Move | None) -> str:
    """Return the phase and the class of its target, ``"<phase> <class>"``.

    What changes an object is a phase of its own, whichever object it is: ``"take apple"``, ``"put
    apple"``, ``"clean apple"``, ``"heat apple"``, ``"cool apple"``, ``"slice apple"``, ``"use
    desklamp"``. All else (walking, doors, looking, examining, and what could not be done) serves
    the search for what the goal needs next, and so says ``"find <class>"``:

    - an object of the goal's class, while none is in the hand: ``"find apple"``;
    - what treats it, while an object of the goal is held that has yet to be cleaned, heated or
      cooled: ``"find sinkbasin"``, ``"find microwave"``, ``"find fridge"``;
    - where it goes, while one is held that can be placed: ``"find countertop"``, or the lamp that
      it is looked at under: ``"find desklamp"``.

    So consecutive turns of one sub-goal share their key, and the shortest success has four: find,
    take, find, put. The key depends on nothing but the arguments.

    Args:
        game: the household.
        before: the state that the action met.
        move: what was done; None where it could not be done.
    """
    if move is not None and move.kind in _MANIPULATIONS:
        return f"{_MANIPULATIONS[move.kind]} {game.object_types[move.object]}"
    return f"find {_wanted(game, before)}"


def _wanted(game: Game, state: State) -> str:
    """Return the class of what the goal needs next."""
    goal, held = game.goal, state.held
    if held < 0 or not game.targets >> held & 1:
        return goal.object
    tool, treated = {
        "pick_clean_then_place_in_recep": ("sinkbasin", state.clean),
        "pick_heat_then_place_in_recep": ("microwave", state.hot),
        "pick_cool_then_place_in_recep": ("fridge", state.cool),
    }.get(goal.type, ("", -1))
    if not treated >> held & 1:
        return tool
    return goal.receptacle or goal.lamp
