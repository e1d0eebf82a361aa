"""Who meets whom, why, and what each of them may know of the other.

Source: the records and the visibility rules of sotopia (Zhou et al. 2023). Two versions of the
rule are in use, and :data:`Visibility` names both:

- ``"relationship"`` (default): what one sees of the other depends on how close they are. So the
  paper has it, and so the published GPT-4 episodes were played.
- ``"own"``: the other's whole background is ``Unknown`` whatever the relationship, as sotopia 0.1.5
  does it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, TypeAlias

__all__ = ["Character", "Combination", "Relationship", "Scenario", "Seat", "Visibility"]

Visibility: TypeAlias = Literal["relationship", "own"]


class Relationship(IntEnum):
    """Closeness of two characters; upstream's numbers."""

    STRANGER = 0
    KNOW_BY_NAME = 1
    ACQUAINTANCE = 2
    FRIEND = 3
    ROMANTIC = 4
    FAMILY = 5


@dataclass(frozen=True, slots=True)
class Character:
    """A person whom an agent plays."""

    id: str
    first_name: str
    last_name: str
    age: int
    occupation: str
    gender: str = ""
    """``Man``, ``Woman``, ``Nonbinary`` or empty."""
    pronouns: str = ""
    """As upstream writes them, e.g. ``She/her``."""
    public_info: str = ""
    """What acquaintances know."""
    personality: str = ""
    """Personality and values: what friends and closer ones know."""
    secret: str = ""
    """What nobody else knows."""

    @property
    def name(self) -> str:
        """First and last name."""
        return f"{self.first_name} {self.last_name}"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A situation for two, and what each of them wants."""

    id: str
    """Unique and stable, e.g. upstream's ``01H7VFHN...`` or ``builtin/price/17``."""
    text: str
    """The situation, which both know."""
    goals: tuple[str, str]
    """Private goal of side 0 and of side 1, upstream's tags (``<extra_info>`` ...) included."""
    relationship: Relationship = Relationship.STRANGER
    source: str = ""
    """Kind of scenario, ``Task.type``: ``craigslist_bargains``, ``price``, ``schedule``, ..."""
    codename: str = ""
    terms: Any = None
    """What a machine can check (prices, values of items, calendars); immutable and picklable, None
    where only a judge can tell."""


@dataclass(frozen=True, slots=True)
class Combination:
    """A scenario with its cast."""

    id: str
    scenario: Scenario
    characters: tuple[Character, Character]
    """Who plays side 0, who opens in round-robin order, and side 1."""

    @property
    def names(self) -> tuple[str, str]:
        """Names of both sides."""
        return (self.characters[0].name, self.characters[1].name)


@dataclass(frozen=True, slots=True)
class Seat:
    """Content of a task (``Task.data``): a combination, and the side that the agent plays."""

    combination: Combination
    side: int
    """0 or 1."""
