"""The list of admissible actions, on things that the character perceives or knows of.

It perceives the rooms, the things in its room that are not inside something closed, the things it
holds and wears, and its body. It knows of the task's things, and of the furniture of the whole
household that opens, because things may be in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from sys import intern
from typing import Any, NamedTuple, TypeAlias

from creditrl.envs.virtualhome.actions import FORMS, Around, around, in_hand, lexicon, meant
from creditrl.envs.virtualhome.acts import ACTIONS
from creditrl.envs.virtualhome.choices import Choice
from creditrl.envs.virtualhome.graph import ON, Scene, World, bits
from creditrl.envs.virtualhome.profiles import Profile

__all__ = [
    "GAZES",
    "ORDER",
    "TWINS",
    "Labels",
    "Listing",
    "known_things",
    "labels",
    "listing",
    "own",
    "said",
    "worthwhile",
]

ORDER = (
    # What changes the household ...
    *("GRAB", "PUTBACK", "PUTIN", "PUTOBJBACK", "POUR", "OPEN", "CLOSE", "SWITCHON", "SWITCHOFF"),
    *("PLUGIN", "PLUGOUT", "WASH", "WIPE", "PUTON", "PUTOFF", "DROP", "SIT", "LIE", "STANDUP"),
    # ... where one is ...
    *("WALK", "FIND", "TURNTO"),
    # ... and nothing.
    *("DRINK", "EAT", "CUT", "READ", "WATCH", "LOOKAT", "TYPE", "SLEEP"),
    *("SQUEEZE", "MOVE", "PUSH", "TOUCH", "GREET"),
)
"""The actions that are listed, in this order."""

TWINS: Mapping[str, str] = {
    "RUN": "WALK",
    "RINSE": "WASH",
    "SCRUB": "WASH",
    "RELEASE": "DROP",
    "PULL": "MOVE",
    "POINTAT": "LOOKAT",
    "WAKEUP": "SLEEP",
}
"""Actions that are not listed, because they duplicate another one."""

assert {*ORDER, *TWINS} == {*ACTIONS}


GAZES = ("WATCH", "LOOKAT")
"""The only listed actions that depend on what the character faces."""
_AT = ORDER.index(GAZES[0])
_BEFORE_GAZES, _AFTER_GAZES = ORDER[:_AT], ORDER[_AT + len(GAZES) :]
assert ORDER[_AT : _AT + len(GAZES)] == GAZES


Labels: TypeAlias = tuple[int, int]
"""The nodes that are named with their id, and those that are as the first of two objects: bits."""


class Listing(NamedTuple):
    """The admissible actions."""

    actions: tuple[str, ...]
    gazes: int
    """Where those of :data:`GAZES` begin ..."""
    end: int
    """... and end."""


def known_things(scene: Scene, names: Mapping[str, int]) -> int:
    """Return, as bits, the task's things and the furniture that opens: known from anywhere."""
    having = scene.having
    furniture = having["CAN_OPEN"] & having["CONTAINERS"] & ~having["GRABBABLE"]
    return furniture | sum({1 << scene.index[id] for id in names.values()})


def own(scene: Scene, world: World) -> int:
    """Return the parts of the body and what is worn, as bits."""
    return scene.having["BODY_PART"] | world.back[ON][scene.character]


def labels(
    scene: Scene, world: World, names: Mapping[str, int], nodes: int, near: Around | None = None
) -> Labels:
    """Return which of these nodes are named with their id; bits of other nodes are meaningless."""
    single = lexicon(scene).single
    several = nodes & ~single
    if not several:
        return 0, 0
    near = near or around(scene, world)
    numbered = several
    while several:
        class_name = scene.classes[(several & -several).bit_length() - 1]
        numbered &= ~(1 << meant(scene, world, names, class_name, near))
        several &= ~scene.of_class[class_name]
    given = numbered
    for node in bits(world.held(scene) & nodes & ~single):
        class_name = scene.classes[node]
        stand = in_hand(scene, world, meant(scene, world, names, class_name, near))
        given = given & ~(1 << node) if stand == node else given | 1 << node
    return numbered, given


def worthwhile(
    possible: dict[str, Choice], world: World, profile: Profile, here: Around
) -> dict[str, Choice]:
    """Return the possible actions, without pointless ones.

    TURNTO is kept for perceived things. FIND duplicates WALK, except for near things not yet found,
    which exist only in profile ``v1``.
    """
    find, turn = possible["FIND"], possible["TURNTO"]
    assert isinstance(find, int) and isinstance(turn, int)
    find &= here.reached & ~world.found if profile.found_first else 0
    return {**possible, "FIND": find, "TURNTO": turn & here.seen}


def listing(scene: Scene, possible: Mapping[str, Choice], called: Labels = (0, 0)) -> Listing:
    """Return actions in words: in the order of :data:`ORDER`, then of their objects' ids.

    ``possible`` is what :func:`creditrl.envs.virtualhome.choices.choices` returns, ``called`` what
    :func:`labels` does; by default nothing is called by its id.
    """
    before = said(scene, possible, called, _BEFORE_GAZES)
    gazes = said(scene, possible, called, GAZES)
    after = said(scene, possible, called, _AFTER_GAZES)
    return Listing((*before, *gazes, *after), len(before), len(before) + len(gazes))


def said(
    scene: Scene, possible: Mapping[str, Choice], called: Labels, actions: Sequence[str]
) -> list[str]:
    """Return some of the actions in words, in their order."""
    numbered, given = called
    places: dict[int, tuple[Any, ...]] = scene.words.setdefault("places", {})
    phrases: dict[str, Sequence[str]] = scene.words.setdefault("phrases", {})
    names, size = _names(scene), len(scene.ids)
    found: list[str] = []
    for name in actions:
        choice = possible[name]
        if not choice:
            continue
        if choice is True:
            found.append(FORMS[name])
        elif isinstance(choice, list):
            before, between, _ = FORMS[name].split("{}")
            for one, others in choice:
                start = f"{before}{names[one + size * (given >> one & 1)]}{between}"
                key = others | (others & numbered) << size
                at = places.get(key) or _new_places(size, places, key)
                found += [start + other for other in itemgetter(*at)(names)]
        else:
            words = phrases.get(name) or _new_phrases(scene, phrases, name)
            if choice & (choice - 1):
                key = choice | (choice & numbered) << size
                at = places.get(key) or _new_places(size, places, key)
                found += itemgetter(*at)(words)
            else:
                node = choice.bit_length() - 1
                found.append(words[node + size * (numbered >> node & 1)])
    return found


def _new_places(size: int, places: dict[int, tuple[Any, ...]], key: int) -> tuple[Any, ...]:
    """Return where the words of some nodes are in a list as :func:`_names` makes it.

    The key has the nodes, and then, from ``size`` up, those of them that are named with their id.
    """
    nodes, numbered = key & (1 << size) - 1, key >> size
    at: list[Any] = [*bits(nodes)]
    if numbered:
        at = [n + size if numbered >> n & 1 else n for n in at]
    if len(at) < 2:  # of one item, an itemgetter returns no sequence; of a slice, it does
        at = [slice(n, n + 1) for n in at] or [slice(0)]
    if len(places) >= _PLACES_KEPT:
        places.clear()
    found = places[key] = tuple(at)
    return found


def _names(scene: Scene) -> Sequence[str]:
    """Return the names of all nodes, and then all names with ids."""
    names: Sequence[str] | None = scene.words.get("names")
    if names is None:
        known = lexicon(scene)
        names = scene.words["names"] = (*known.words, *known.numbered)
    return names


def _new_phrases(scene: Scene, phrases: dict[str, Sequence[str]], name: str) -> Sequence[str]:
    """Make an action with every node, in the order of :func:`_names`."""
    before = FORMS[name].removesuffix("{}")
    # Days of a house, and houses, say the same: the words are kept once for all of them.
    phrases[name] = tuple([intern(before + word) for word in _names(scene)])
    return phrases[name]


_PLACES_KEPT = 1_024
"""Sets of nodes, for each scene."""
