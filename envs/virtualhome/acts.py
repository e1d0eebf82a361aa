"""Actions and their outcomes."""

from __future__ import annotations

from typing import Literal, NamedTuple

from creditrl.envs.virtualhome.graph import World

__all__ = ["ACTIONS", "Act", "Code", "Failure", "Outcome"]

ACTIONS: dict[str, int] = {
    "CLOSE": 1,
    "DRINK": 1,
    "FIND": 1,
    "WALK": 1,
    "GRAB": 1,
    "LOOKAT": 1,
    "OPEN": 1,
    "POINTAT": 1,
    "PUTBACK": 2,
    "PUTIN": 2,
    "PUTOBJBACK": 1,
    "RUN": 1,
    "SIT": 1,
    "STANDUP": 0,
    "SWITCHOFF": 1,
    "SWITCHON": 1,
    "TOUCH": 1,
    "TURNTO": 1,
    "WATCH": 1,
    "WIPE": 1,
    "PUTON": 1,
    "PUTOFF": 1,
    "GREET": 1,
    "DROP": 1,
    "READ": 1,
    "LIE": 1,
    "POUR": 2,
    "TYPE": 1,
    "PUSH": 1,
    "PULL": 1,
    "MOVE": 1,
    "WASH": 1,
    "RINSE": 1,
    "SCRUB": 1,
    "SQUEEZE": 1,
    "PLUGIN": 1,
    "PLUGOUT": 1,
    "CUT": 1,
    "EAT": 1,
    "SLEEP": 0,
    "WAKEUP": 0,
    "RELEASE": 1,
}
"""The actions that upstream can execute, in its order, with the number of their objects.

PUTBACK puts something on something, PUTOBJBACK puts something back where it was taken from.
"""

Code = Literal[
    "not_found",
    "not_close",
    "not_facing",
    "not_held",
    "already_held",
    "hands_full",
    "hands_empty",
    "no_knife",
    "inside_closed",
    "closed",
    "wrong_state",
    "wrong_property",
    "occupied",
    "not_upright",
    "upright",
    "not_worn",
    "not_grabbed",
    "itself",
    "other_room",
    "no_room",
    "closed_door",
    "no_path",
    "crash",
]
"""Reason why an action fails. ``not_found`` (profile v1): the character has neither walked to the
thing nor found it before. ``crash`` (spa): upstream raises, and its environment says "Error
Input"."""


class Act(NamedTuple):
    """One grounded action."""

    name: str
    """A key of :data:`ACTIONS`."""
    objects: tuple[int, ...] = ()
    """Ids of nodes."""


class Failure(NamedTuple):
    """The first precondition that does not hold, in upstream's order."""

    code: Code
    objects: tuple[int, ...]
    """Ids of the nodes it is about."""
    text: str
    """One sentence, e.g. ``"tv (264) is not close."``."""


class Outcome(NamedTuple):
    """Outcome of an action."""

    world: World
    """The world afterwards. If the action failed, it equals the world before; with
    ``order="lowest"`` it is the same object."""
    failure: Failure | None
