"""Requirements of a WebShop goal, and how far a product's texts, options and price meet them.

Words are compared without endings of plurals, options as whole phrases. It is what a customer sees
at a glance, and less than what the reward compares: of attributes that no page names it knows
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from creditrl.envs.webshop.goal_words import LEFT_OUT, WORD

__all__ = ["Wanted", "fits", "likeness", "met", "queries", "read_goal", "stems"]

_PRICE = re.compile(r",? and price lower than ([\d.]+) dollars\.?$")
_AMOUNT = re.compile(r"\$([\d,]*\.?\d+)")
_REMEMBERED = 16_384


@dataclass(frozen=True, slots=True)
class Wanted:
    """Demands of a goal, as far as its words tell."""

    words: tuple[str, ...]
    """What one would type: without price, listed options and words that say nothing."""
    options: tuple[tuple[str, str], ...]
    """(name, value) of the options listed at its end, as synthetic goals have them."""
    thing: tuple[str, ...]
    """The last two words before its first "with" or "for": the kind of product, as a rule."""
    most: float
    """Highest price in dollars; infinite where none is named."""
    stems: frozenset[str]
    """Of ``words``."""
    neighbours: frozenset[tuple[str, str]]
    """Stems of two adjacent words of ``words``."""
    phrases: str
    """All of its words between single blanks, in which values of options are looked up."""


@lru_cache(maxsize=_REMEMBERED)
def read_goal(goal: str) -> Wanted:
    """Read an instruction."""
    text = goal.lower()
    found = _PRICE.search(text)
    text = text[: found.start()] if found else text
    head, options = _listed(text)
    words = _content(head)
    thing = _content(re.split(r" with | for |[.]", head, maxsplit=1)[0])[-2:]
    return Wanted(
        words=words,
        options=options,
        thing=thing,
        most=float(found[1]) if found else float("inf"),
        stems=stems(" ".join(words)),
        neighbours=frozenset(pairwise(map(_stem, words))),
        phrases=f" {' '.join(WORD.findall(text))} ",
    )


def _listed(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return (the text before " with name: value, and name: value", the options)."""
    colon = text.find(": ")
    start = text.rfind(" with ", 0, max(colon, 0))
    if start < 0:
        return text, ()
    pairs = [part.partition(": ") for part in text[start + len(" with ") :].split(", and ")]
    if not all(colon and len(name.split()) < 5 for name, colon, _ in pairs):
        return text, ()
    return text[:start], tuple((name, value) for name, _, value in pairs)


def _content(text: str) -> tuple[str, ...]:
    return tuple(word for word in WORD.findall(text) if word not in LEFT_OUT)


@lru_cache(maxsize=_REMEMBERED)
def stems(text: str) -> frozenset[str]:
    """Return the words of a text, without "'s" and the endings of plurals."""
    return frozenset(map(_stem, WORD.findall(text.lower())))


def met(wanted: Wanted, known: frozenset[str]) -> frozenset[str]:
    """Return which of a goal's stems are known; "light weight" is known where "lightweight" is."""
    return (wanted.stems & known).union(
        *({a, b} for a, b in wanted.neighbours if a + b in known and not {a, b} <= known)
    )


def _stem(word: str) -> str:
    for end, instead in (("'s", ""), ("ies", "y"), ("sses", "ss"), ("s", "")):
        if word.endswith(end) and len(word) > len(end) + 2 and not word.endswith("ss"):
            return word.removesuffix(end) + instead
    return word


@lru_cache(maxsize=_REMEMBERED)
def queries(goal: str) -> tuple[str, ...]:
    """Return what to search for, by slots of the goal: four queries at most.

    Its words; these and the values of its options; what kind of thing it is; that and the values.
    """
    wanted = read_goal(goal)
    values = WORD.findall(" ".join(value for _, value in wanted.options))
    slots = (
        wanted.words,
        _with_new(wanted.words, values),
        wanted.thing,
        _with_new(wanted.thing, values),
    )
    return tuple(dict.fromkeys(" ".join(words) for words in slots if words))


def _with_new(words: tuple[str, ...], more: Iterable[str]) -> tuple[str, ...]:
    return (*words, *(word for word in dict.fromkeys(more) if word not in words))


@lru_cache(maxsize=_REMEMBERED)
def fits(price: str, most: float) -> str:
    """Return whether a price is low enough: "fits", "dear", or "may fit" where it is a range."""
    amounts = [float(text.replace(",", "")) for text in _AMOUNT.findall(price)]
    if not amounts or max(amounts) <= most:
        return "fits"
    return "dear" if min(amounts) > most else "may fit"


@lru_cache(maxsize=_REMEMBERED)
def likeness(label: str, goal: str) -> int:
    """Return how well an option's value meets a goal.

    3: the goal lists this value. 2: its words are adjacent in the goal. 1: the goal has one of its
    words, or the value is one of the goal's values but for its form. 0: neither.
    """
    wanted = read_goal(goal)
    group, colon, value = label.partition(": ")
    value = value if colon else label
    if any(value == v and (not colon or group == n) for n, v in wanted.options):
        return 3
    words = WORD.findall(value)
    if not words:
        return 0
    if f" {' '.join(words)} " in wanted.phrases:
        return 2
    letters = [word for word in words if not word.isdigit() and len(word) > 1]
    return int(any(f" {word} " in wanted.phrases for word in letters))
