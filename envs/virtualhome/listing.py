"""The list of admissible actions: what can be done with what the character perceives or knows of.

It perceives the rooms, what is in its own and not inside something closed, what it holds and wears,
and its body. It knows of what the task is about, and of the furniture of the whole household that
opens, in which things may be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from creditrl.envs.virtualhome.actions import FORMS, Around, around, in_hand, lexicon, meant
from creditrl.envs.virtualhome.acts import ACTIONS
from creditrl.envs.virtualhome.choices import Choice
from creditrl.envs.virtualhome.graph import ON, Scene, World, bits
from creditrl.envs.virtualhome.profiles import Profile

__all__ = ["ORDER", "Labels", "TWINS", "known_things", "labels", "listing", "own", "worthwhile"]

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
"""Actions that are not listed: they do what another one does."""

assert {*ORDER, *TWINS} == {*ACTIONS}


Labels: TypeAlias = tuple[Sequence[str], Sequence[str]]
"""By node, how it is called, and how as the first of two objects."""


def known_things(scene: Scene, names: Mapping[str, int]) -> int:
    """Return what the character knows of wherever it is, as bits.

    What a task is about, and the furniture that opens, in which things may be.

    Args:
        scene: what never changes.
        names: ids of what the task is about, by class.
    """
    having = scene.having
    furniture = having["CAN_OPEN"] & having["CONTAINERS"] & ~having["GRABBABLE"]
    return furniture | sum({1 << scene.index[id] for id in names.values()})


def own(scene: Scene, world: World) -> int:
    """Return the parts of the body and what is worn, as bits."""
    return scene.having["BODY_PART"] | world.back[ON][scene.character]


def labels(
    scene: Scene, world: World, names: Mapping[str, int], nodes: int, near: Around | None = None
) -> Labels:
    """Return how some nodes are called; what is said of other nodes means nothing."""
    known = lexicon(scene)
    several = nodes & ~known.single
    if not several:
        return known.words, known.words
    called = list(known.words)
    near = near or around(scene, world)
    others = several
    while several:
        class_name = scene.classes[(several & -several).bit_length() - 1]
        others &= ~(1 << meant(scene, world, names, class_name, near))
        several &= ~scene.of_class[class_name]
    for node in bits(others):
        called[node] = known.numbered[node]
    given = called
    for node in bits(world.held(scene) & nodes & ~known.single):
        class_name = scene.classes[node]
        stand = in_hand(scene, world, meant(scene, world, names, class_name, near))
        if given is called:
            given = called.copy()
        given[node] = known.words[node] if stand == node else known.numbered[node]
    return called, given


def worthwhile(
    possible: dict[str, Choice], world: World, profile: Profile, here: Around
) -> dict[str, Choice]:
    """Return what is possible, less what nobody would do.

    One turns to what one perceives. What FIND does, WALK does too, save with what is near and was
    not found yet: only profile ``v1`` knows of that.
    """
    find, turn = possible["FIND"], possible["TURNTO"]
    assert isinstance(find, int) and isinstance(turn, int)
    find &= here.reached & ~world.found if profile.found_first else 0
    return {**possible, "FIND": find, "TURNTO": turn & here.seen}


def listing(
    possible: Mapping[str, Choice],
    called: Sequence[str],
    given: Sequence[str],
    forms: Mapping[str, str] = FORMS,
) -> tuple[str, ...]:
    """Return actions in words: in the order of :data:`ORDER`, then of their objects' ids.

    Args:
        possible: what :func:`creditrl.envs.virtualhome.choices.choices` returns.
        called: by node, how it is called.
        given: how it is called as the first of two objects.
        forms: of the actions.
    """
    spelled: dict[int, list[str]] = {}

    def names(nodes: int) -> list[str]:
        known = spelled.get(nodes)
        if known is None:
            known = spelled[nodes] = [called[node] for node in bits(nodes)]
        return known

    found: list[str] = []
    for name in ORDER:
        choice = possible[name]
        if not choice:
            continue
        if isinstance(choice, list):
            before, between, _ = forms[name].split("{}")
            for one, others in choice:
                start = f"{before}{given[one]}{between}"
                found += [start + other for other in names(others)]
        elif choice is True:
            found.append(forms[name])
        else:
            before = forms[name].removesuffix("{}")
            found += [before + thing for thing in names(choice)]
    return tuple(found)
