"""Semantics of VirtualHome that hold: choices, and three sets of them with names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

__all__ = ["FIXED", "PROFILES", "SPA", "V1", "Profile"]


@dataclass(frozen=True, slots=True)
class Profile:
    """Upstream that is followed, choice by choice; the defaults are master, repaired."""

    name: str
    found_first: bool = False
    """Things must have been walked to or found before anything else can be done with them."""
    closed_doors: bool = False
    """Closed doors stop whoever walks, except to the nearest of them."""
    near_rooms: bool = False
    """Who walks to a room is close to the room itself and to the parts of the body."""
    near_things_on: bool = False
    """Who walks to a surface is close to what is on it."""
    near_contents: bool = True
    """Who walks to a thing is close to what is in it, if it opens, and to what it is on."""
    grab_again: Literal["yes", "unless remembered", "unless held"] = "unless held"
    """Whether a thing can be grabbed that is in a hand. ``"yes"``: the other hand holds it too.
    ``"unless remembered"``: not as long as it is remembered from where it was grabbed, although it
    was put on or poured out since."""
    into_itself: bool = False
    """A thing can be put on, or poured into, itself."""
    put_back_always: bool = False
    """PUTOBJBACK of a thing that was grabbed always succeeds, though nothing happens."""
    first_posture: bool = False
    """Whether the character sits or lies is read from the initial graph."""
    crashes: bool = False
    """FIND of what is not close, and PUTOFF, raise an error upstream; so does what asks for the
    room of a thing that is in none."""
    room: Literal["direct", "climb", "search"] = "search"
    """In which room a thing is. ``"direct"``: the one it is INSIDE. ``"climb"``: if it is INSIDE
    one thing only, where that is. ``"search"``: the nearest through whatever it is INSIDE."""
    order: Literal["lowest", "sets"] = "lowest"
    """Which of several equals comes first: the lowest id, or as in Python's sets."""
    copies: bool = False
    """``order="sets"``: upstream copies its sets at every action that succeeds."""
    looks: tuple[int, int, int] = (0, 0, 0)
    """``order="sets"``: how often the whole graph is listed before an action, after one that
    succeeds and after one that fails; never after a crash."""


V1 = Profile(
    "v1",
    found_first=True,
    closed_doors=True,
    near_rooms=True,
    near_things_on=True,
    near_contents=False,
    grab_again="yes",
    into_itself=True,
    room="direct",
    order="sets",
    looks=(1, 0, 0),
)
"""Release v1.0.0, as its own program checker runs it: the semantics that recorded the data."""
SPA = Profile(
    "spa",
    grab_again="unless remembered",
    into_itself=True,
    put_back_always=True,
    first_posture=True,
    crashes=True,
    room="climb",
    order="sets",
    copies=True,
    looks=(1, 2, 1),
)
"""Master as SPA, STeCa and HISR run it, defects included."""
FIXED = Profile("fixed")
"""Master, repaired: nothing raises, posture is what it is now, a hand holds a thing once, putting
back fails where putting would, and the lowest id comes first."""

PROFILES: Mapping[str, Profile] = MappingProxyType(
    {profile.name: profile for profile in (V1, SPA, FIXED)}
)
