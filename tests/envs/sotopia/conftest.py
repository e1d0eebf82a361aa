"""Two people who meet, and the published episodes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from creditrl.envs.sotopia.dialogue import NOTHING, Action, Turns
from creditrl.envs.sotopia.env import SotopiaConfig
from creditrl.envs.sotopia.profiles import Character, Combination, Relationship, Scenario


def _combination(
    relationship: Relationship = Relationship.FRIEND, name: str = "flat"
) -> Combination:
    """Return Ann Lee, who sells a lamp, and Bo Diaz, who wants it."""
    ann = Character(
        *("ann", "Ann", "Lee", 31, "Baker", "Woman", "She/her", "Ann bakes at night."),
        *("Ann is calm.", "Ann cannot cook."),
    )
    bo = Character(
        *("bo", "Bo", "Diaz", 40, "Pilot", "Man", "He/him", "Bo flies gliders.", "Bo is bold."),
        "Bo fears heights.",
    )
    scenario = Scenario(
        id=name,
        text="Two people look at a lamp that is for sale.",
        goals=("Sell it (<extra_info>it cost you 20</extra_info>)", "Buy it for at most 30"),
        relationship=relationship,
        source="test",
    )
    return Combination(f"{name}/cast", scenario, (ann, bo))


@pytest.fixture
def combination() -> Combination:
    """Return two friends; see :func:`make_combination`."""
    return _combination()


@pytest.fixture
def make_combination() -> Callable[..., Combination]:
    """Return a function that makes such combinations with other relationships and names."""
    return _combination


@pytest.fixture
def two_casts(monkeypatch: pytest.MonkeyPatch) -> list[Combination]:
    """Replace the combinations of any options by two scenarios made for the test."""
    casts = [_combination(), _combination(name="other")]
    monkeypatch.setattr(SotopiaConfig, "combinations", lambda config: casts)
    return casts


@dataclass(frozen=True)
class Recorded:
    """A published episode."""

    combination: Combination
    turns: Turns
    reasons: frozenset[str]
    """Why it ended, in our words."""
    shown: tuple[tuple[str, str], ...] = ()
    """What each side was shown, per turn; empty where only the dialogue is known."""


_REASONS = (
    ("The conversation is too long", "turn_limit"),
    ("is leaving", "left"),
    ("The conversation stales for too long", "stale"),
)


def _action(text: str) -> Action:
    text = text.strip()
    if text in ("", "did nothing"):
        return NOTHING
    if text == "left the conversation":
        return Action("leave")
    marked = re.fullmatch(r"\[(non-verbal communication|action)\] (.*)", text, re.DOTALL)
    if marked:
        return Action(marked[1], marked[2])  # type: ignore[arg-type]
    said = re.fullmatch(r'said: "(.*)"', text, re.DOTALL)
    assert said is not None, text
    return Action("speak", said[1])


def _dialogue(text: str, names: list[str]) -> Turns:
    """Parse paragraphs "X said: ..." and "Y: [action] ..."; an empty one is a turn of nothing."""
    own = "|".join(map(re.escape, names))
    # A paragraph within an utterance is not a turn of its own.
    parts = re.split(rf"\n\n(?=(?:{own})(?: said: |: )|\n\n|$)", text)
    if parts[0].startswith(names[1]):
        parts.insert(0, "")  # the log lost an empty first line: side 0 opened by doing nothing
    turns = []
    for k, part in enumerate(parts):
        found = re.match(rf"({own}):? (.*)", part, re.DOTALL)
        side = k % 2
        assert found is None or found[1] == names[side], "sides take turns"
        action = NOTHING if found is None else _action(found[2])
        turns.append((action, NOTHING) if side == 0 else (NOTHING, action))
    return tuple(turns)


def _people(row: dict[str, Any]) -> tuple[Character, Character]:
    made = []
    for name in row["agents_background"]:
        first, _, last = name.partition(" ")
        made.append(Character(name, first, last, 30, "Baker"))
    return made[0], made[1]


def _of_row(
    row: dict[str, Any], scenarios: dict[str, Any], people: dict[str, Character]
) -> Recorded:
    reasons = frozenset(
        ours for theirs, ours in _REASONS if theirs in row["reasoning"].split("\n")[0]
    )
    if "raw_messages" not in row:
        scenario = Scenario(row["codename"], row["scenario"], tuple(row["social_goals"].values()))
        cast = _people(row)
        turns = _dialogue(row["social_interactions"], [c.name for c in cast])
        return Recorded(Combination(row["episode_id"], scenario, cast), turns, reasons)
    known = scenarios[row["environment_id"]]
    scenario = Scenario(
        known["env_id"],
        known["scenario"],
        tuple(known["agent_goals"]),
        Relationship(int(known["relationship"])),
    )
    one, other = (people[agent] for agent in row["agent_ids"])
    messages = row["raw_messages"]
    turns = tuple((_action(turn[2][2]), _action(turn[3][2])) for turn in messages[:-1])
    shown = tuple((turn[0][2], turn[1][2]) for turn in messages)
    return Recorded(Combination(row["episode_id"], scenario, (one, other)), turns, reasons, shown)


@pytest.fixture
def recorded(test_data: Path) -> list[Recorded]:
    """Return all published episodes (42 or more); the last ones include the texts sides saw."""
    return _read(test_data / "sotopia")


@cache
def _read(folder: Path) -> list[Recorded]:

    def rows(name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]

    scenarios = {row["env_id"]: row for row in rows("environment_profiles.jsonl")}
    names = (
        *("agent_id", "first_name", "last_name", "age", "occupation", "gender", "gender_pronoun"),
        *("public_info", "personality_and_values", "secret"),
    )
    people = {
        row["agent_id"]: Character(*(row[name] for name in names))
        for row in rows("agent_profiles.jsonl")
    }
    both = rows("scored_episodes_a.jsonl") + rows("scored_episodes_b.jsonl")
    return [_of_row(row, scenarios, people) for row in both]
