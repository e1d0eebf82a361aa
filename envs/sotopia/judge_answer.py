"""From what a judge wrote to scores: by key and by name, never by position."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from creditrl.envs.sotopia.dimensions import DIMENSIONS, Dimension
from creditrl.envs.sotopia.loose_json import Found, read_json

__all__ = ["Reading", "read_answer"]

_MOST_PROBLEMS = 6
_DEEPEST = 4

_ALIASES: Mapping[str, str] = {
    "relationships": "relationship",
    "secrets": "secret",
    "socialrule": "social_rules",
    "socialnorms": "social_rules",
    "financialandmaterialbenefit": "financial_and_material_benefits",
    "financialmaterialbenefits": "financial_and_material_benefits",
    "financialbenefits": "financial_and_material_benefits",
    "materialbenefits": "financial_and_material_benefits",
    "financial": "financial_and_material_benefits",
    "goals": "goal",
    "socialgoal": "goal",
    "socialgoals": "goal",
    "goalcompletion": "goal",
    "goalachievement": "goal",
}
_WRAPPERS = (
    "evaluations",
    "evaluation",
    "agents",
    "participants",
    "results",
    "result",
    "output",
    "answer",
    "response",
    "scores",
    "ratings",
)
_WHO = ("agent", "agentid", "agentname", "name", "id", "key", "participant", "role", "character")
_SCORE_KEYS = ("score", "rating", "value", "points", "grade")
_REASON_KEYS = (
    "reasoning",
    "reason",
    "rationale",
    "explanation",
    "comment",
    "comments",
    "analysis",
)
_NUMBERED = re.compile(
    r"\b(?:agent|participant|person|player|character|speaker|side)\s*(\d+|one|two|a|b)\b"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=\d)(?=[a-z])")
_ORDINALS: Mapping[str, int] = {"one": 1, "two": 2, "a": 1, "b": 2}
_NUMBER = re.compile(
    r"\s*(?:score\s*[:=]?\s*)?([+\-\u2212]?\d+(?:\.\d+)?)(?:\s*(?:/|out of)\s*(\d+))?\s*\.?\s*",
    re.I,
)
_SCORE_AT_END = re.compile(
    r"(.*)\bscore\s*[:=]\s*([+\-\u2212]?\d+(?:\.\d+)?(?:\s*/\s*\d+)?)\s*\.?\s*", re.I | re.S
)


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of an answer."""

    scores: tuple[Mapping[str, float], Mapping[str, float]] = field(
        default_factory=lambda: ({}, {})
    )
    """Per side and dimension, in range; without what could not be read."""
    reasoning: tuple[Mapping[str, str], Mapping[str, str]] = field(default_factory=lambda: ({}, {}))
    repaired: bool = False
    """Whether the answer was something else than the JSON that was asked for."""
    problems: tuple[str, ...] = ()
    """Why it is of no use, for the judge to read; empty where every score was read."""
    named: tuple[Collection[str], Collection[str]] = ((), ())
    """Dimensions that it says anything of, per side."""


def read_answer(
    text: str, names: tuple[str, str], dimensions: Sequence[Dimension] = DIMENSIONS
) -> Reading:
    """Read the scores out of a judge's answer; takes any string.

    Participants are known by key (``agent_1``, ``agent_1_evaluation``, ``Agent 2``), by name, or by
    the words before an object; where these disagree, or an entry names nobody, it is not used. A
    score out of its range is not clamped: the judge has then not understood the scale. Of several
    whole evaluations (a draft and a final version) the last counts, unless something after it says
    otherwise; where no object is whole, what several say is joined.

    Args:
        text: the answer.
        names: full names of both sides.
        dimensions: what was to be scored.
    """
    found = read_json(text)
    if not found:
        return Reading(problems=("it holds no JSON object",))
    parts = [_read([one], names, dimensions) for one in found]
    joined = parts[0] if len(found) == 1 else _read(found, names, dimensions)
    whole = [i for i, part in enumerate(parts) if not part.problems]
    if not whole:
        return joined if not joined.problems else max((*parts, joined), key=_how_much)
    last = parts[whole[-1]]
    for later in parts[whole[-1] + 1 :]:
        for side in (0, 1):
            for name in later.named[side]:
                if later.scores[side].get(name) != last.scores[side][name]:
                    why = f"agent_{side + 1} ({names[side]}): {name} is there twice, differently"
                    return replace(later, problems=(why, *later.problems))
    return last


def _how_much(reading: Reading) -> int:
    return sum(map(len, reading.scores))


def _read(
    found: Sequence[Found], names: tuple[str, str], dimensions: Sequence[Dimension]
) -> Reading:
    """Read objects as one evaluation."""
    sides = _Sides(names, dimensions, [one.value for one in found])
    for one in found:
        if not sides.search(one.value, 0):
            # The last words before it may say whom it is about.
            sides.add(" ".join(one.before.split())[-120:], one.value, deepest=0)
    problems = list(sides.problems)
    scores: tuple[dict[str, float], dict[str, float]] = ({}, {})
    reasoning: tuple[dict[str, str], dict[str, str]] = ({}, {})
    repaired = not (len(found) == 1 and found[0].alone and found[0].strict)
    named: list[frozenset[str]] = []
    for side, given in enumerate(sides.given):
        who = f"agent_{side + 1} ({names[side]})"
        by_name = _by_dimension(given or {}, sides.wanted)
        named.append(frozenset(by_name))
        if given is None:
            problems.append(f"no entry for {who}")
            continue
        for dimension in dimensions:
            if dimension.name not in by_name:
                problems.append(f"{who}: {dimension.name} is missing")
                continue
            values = by_name[dimension.name]
            reason, score, plain = _pair(values[0], dimension)
            if any(_pair(other, dimension)[1] != score for other in values[1:]):
                problems.append(f"{who}: {dimension.name} is there twice, with other scores")
            elif score is None:
                problems.append(f"{who}: {dimension.name} has no score that can be read")
            elif not dimension.low <= score <= dimension.high:
                problems.append(
                    f"{who}: {dimension.name} is {score:g}, expected {dimension.low} to "
                    f"{dimension.high}"
                )
            else:
                scores[side][dimension.name] = score
                reasoning[side][dimension.name] = reason
                repaired = repaired or not plain
    if len(problems) > _MOST_PROBLEMS:
        problems[_MOST_PROBLEMS:] = [f"and {len(problems) - _MOST_PROBLEMS} more of the kind"]
    return Reading(scores, reasoning, repaired, tuple(problems), (named[0], named[1]))


class _Sides:
    """Finds the two participants' entries."""

    def __init__(
        self, names: tuple[str, str], dimensions: Sequence[Dimension], values: Sequence[Any]
    ) -> None:
        self.names = names
        self.dimensions = dimensions
        self.wanted = {dimension.name for dimension in dimensions}
        self.given: list[dict[str, Any] | None] = [None, None]
        self.problems: list[str] = []
        # Agents 0 and 1 may stand in objects of their own.
        numbers = {n for value in values if isinstance(value, dict) for n in map(_number, value)}
        self._from_zero = 0 in numbers and 2 not in numbers

    def search(self, value: Any, depth: int) -> bool:
        """Look for entries in an object; returns whether there was any."""
        if depth > _DEEPEST or not isinstance(value, (dict, list)):
            return False
        entries: list[tuple[str, Any]]
        if isinstance(value, list):
            entries = [(_who(item), item) for item in value]
        else:
            entries = list(value.items())
        held = [(k, v) for k, v in entries if k and isinstance(v, (dict, list))]
        from_zero = self._from_zero or any(_number(key) == 0 for key, _ in held)
        if from_zero and any(_number(key) == 2 for key, _ in held):
            self.problems.append("its agents are numbered 0, 1 and 2")
            return True
        known = [(k, v) for k, v in held if self._mentions(k, from_zero) != (False, False)]
        for key, item in known:
            self.add(key, item, from_zero)
        if not known and isinstance(value, dict) and self._transposed(value):
            return True
        if known and None not in self.given:
            return True
        # All of them: of two that differ nobody can tell which is meant.
        others = [v for k, v in entries if (k, v) not in known]
        return any([self.search(child, depth + 1) for child in others]) or bool(known)

    def add(self, label: str, value: Any, from_zero: bool = False, deepest: int = 2) -> None:
        """Take an entry under its label, if it is about one participant and holds scores."""
        mentions = self._mentions(label, from_zero)
        inside = _who(value)
        if inside:
            mentions = _both(mentions, self._mentions(inside, from_zero))
        side = mentions.index(True) if sum(mentions) == 1 else None
        entries = self._scored(value, deepest, side, from_zero)
        if not entries or not any(mentions):
            return
        if side is None:
            self.problems.append(f"{label.strip()[:60]!r} may be either participant")
            return
        for entry in entries:
            self._give(side, entry)
            for key, item in entry.items():
                # The end of the first participant's object is missing.
                if isinstance(item, dict) and _by_dimension(item, self.wanted):
                    other = self._mentions(key, from_zero)
                    if sum(other) == 1 and not other[side]:
                        self._give(1 - side, item)

    def _give(self, side: int, entry: dict[str, Any]) -> None:
        before = self.given[side]
        if before is not None and before != entry:
            scores, others = self._scores(before), self._scores(entry)
            if any(others.get(name, score) != score for name, score in scores.items()):
                who = f"agent_{side + 1} ({self.names[side]})"
                self.problems.append(f"{who} is there twice, with other scores")
            if len(others) < len(scores):
                return
        self.given[side] = entry

    def _scores(self, entry: Mapping[str, Any]) -> dict[str, float]:
        """Return the scores that can be read in an entry."""
        by_name = _by_dimension(entry, self.wanted)
        pairs = (
            (d.name, _pair(value, d)[1])
            for d in self.dimensions
            for value in by_name.get(d.name, ())
        )
        return {name: score for name, score in pairs if score is not None}

    def _scored(
        self, value: Any, deepest: int, side: int | None, from_zero: bool
    ) -> list[dict[str, Any]]:
        """Return the objects whose keys are dimensions, here or so many levels below."""
        if isinstance(value, list):
            # A list of {"dimension": "goal", "score": 7, ...}.
            rows = {}
            for item in value:
                name = item.get("dimension", item.get("name")) if isinstance(item, dict) else None
                if isinstance(name, str):
                    rows[name] = item
            return [rows] if _by_dimension(rows, self.wanted) else []
        if not isinstance(value, dict):
            return []
        if _by_dimension(value, self.wanted):
            return [value]
        joined = self._split(value)
        if joined is not None or not deepest:
            return [] if joined is None else [joined]
        # All of them: of a draft and a final version that differ nobody can tell which is meant.
        return [
            entry
            for key, child in value.items()
            # What one thinks of the other is no score of one's own.
            if side is None or not self._mentions(key, from_zero)[1 - side]
            for entry in self._scored(child, deepest - 1, side, from_zero)
        ]

    def _split(self, value: Mapping[str, Any]) -> dict[str, Any] | None:
        """Join {"scores": {...}, "reasoning": {...}} by dimension."""
        parts = {
            _squash(k): v
            for k, v in value.items()
            if isinstance(v, dict) and _by_dimension(v, self.wanted)
        }
        scores = next((parts[k] for k in ("scores", "ratings", "score") if k in parts), None)
        reasons = next((parts[k] for k in _REASON_KEYS if k in parts), None)
        if scores is None or reasons is None:
            return None
        said = {_dimension_of(k, self.wanted): v for k, v in reasons.items()}
        return {k: [said.get(_dimension_of(k, self.wanted), ""), v] for k, v in scores.items()}

    def _transposed(self, value: Mapping[str, Any]) -> bool:
        """Read {"goal": {"agent_1": ..., "agent_2": ...}, ...}."""
        turned: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        for key, entry in value.items():
            name = _dimension_of(key, self.wanted)
            if name is None or not isinstance(entry, dict):
                continue
            from_zero = self._from_zero or any(_number(k) == 0 for k in entry)
            for who, item in entry.items():
                mentions = self._mentions(who, from_zero)
                if sum(mentions) == 1:
                    turned[mentions.index(True)][name] = item
        if not any(turned):
            return False
        for side in (0, 1):
            if turned[side]:
                self._give(side, turned[side])
        return True

    def _mentions(self, label: str, from_zero: bool) -> tuple[bool, bool]:
        """Return which participants a label may mean."""
        numbers = _numbers(label)
        sides = {number - (0 if from_zero else 1) for number in numbers}
        if len(sides) == 1 and not sides & {0, 1}:
            return (False, False)
        return _both((0 in sides, 1 in sides), _named(label, self.names))


def _both(one: tuple[bool, bool], other: tuple[bool, bool]) -> tuple[bool, bool]:
    """Join what two labels say: where they disagree, either may be meant."""
    return (one[0] or other[0], one[1] or other[1])


def _named(label: str, names: tuple[str, str]) -> tuple[bool, bool]:
    """Return whose name stands in a label: the full name, or a part that the other has not."""
    if names[0] == names[1]:
        return (False, False)
    squashed = _squash(label)
    full = [_squash(name) for name in names]
    whole = [False, False]
    for side in sorted((0, 1), key=lambda side: -len(full[side])):
        if full[side] and full[side] in squashed:
            whole[side] = True
            squashed = squashed.replace(full[side], " ")  # Ann Lee is not meant by Joann Lee
    if any(whole):
        return (whole[0], whole[1])
    words = set(_words(label).split())
    parts = [set(_words(name).split()) for name in names]
    return (bool(words & (parts[0] - parts[1])), bool(words & (parts[1] - parts[0])))


def _number(label: str) -> int | None:
    """Return the number of the one agent that a label names."""
    numbers = _numbers(label)
    return numbers.pop() if len(numbers) == 1 else None


def _numbers(label: str) -> set[int]:
    """Return the numbers of the agents that a label names: several where it may mean either."""
    text = _words(_CAMEL.sub(" ", label))
    if text in ("0", "1", "2"):
        return {int(text)}
    return {int(_ORDINALS.get(number, number)) for number in _NUMBERED.findall(text)}


def _who(value: Any) -> str:
    """Return how an entry names its participant; empty where it does not."""
    if not isinstance(value, dict):
        return ""
    said = [str(v) for k, v in value.items() if _squash(k) in _WHO and isinstance(v, (str, int))]
    return " ".join(said)


def _by_dimension(value: Mapping[str, Any], wanted: Iterable[str]) -> dict[str, list[Any]]:
    """Return the values of the keys that are dimensions."""
    found: dict[str, list[Any]] = {}
    for key, item in value.items():
        name = _dimension_of(key, wanted)
        if name is not None:
            found.setdefault(name, []).append(item)
    return found


def _dimension_of(key: str, wanted: Iterable[str]) -> str | None:
    squashed = _squash(key).removesuffix("score").removesuffix("evaluation")
    for name in wanted:
        if squashed == _squash(name) or _ALIASES.get(squashed) == name:
            return name
    return None


def _pair(value: Any, dimension: Dimension) -> tuple[str, float | None, bool]:
    """Return (reason, score, whether it is the pair that was asked for)."""
    nested = isinstance(value, list) and len(value) == 1 and isinstance(value[0], (list, dict))
    if nested:
        value = value[0]
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        value = {k: v for item in value for k, v in item.items()}
    if isinstance(value, dict) and [*value] == [str(i) for i in range(len(value))]:
        value, nested = [*value.values()], True
    if isinstance(value, dict):
        score = _first(value, _SCORE_KEYS)
        reason = _first(value, _REASON_KEYS)
        return (reason if isinstance(reason, str) else "", _score(score, dimension), False)
    if isinstance(value, str):
        at_end = _SCORE_AT_END.fullmatch(value)
        if at_end is not None:
            return (at_end[1].strip(), _score(at_end[2], dimension), False)
    items = [_inner(item) for item in value] if isinstance(value, list) else [value]
    scores = {s for item in items if (s := _score(item, dimension)) is not None}
    reasons = [i for i in items if isinstance(i, str) and _score(i, dimension) is None]
    score = scores.pop() if len(scores) == 1 else None
    plain = (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], int)
    )
    return (" ".join(reasons), score, plain and not nested)


def _inner(item: Any) -> Any:
    """Return the score in ``["because", [7]]`` or ``["because", {"score": 7}]``."""
    if isinstance(item, list) and len(item) == 1:
        return item[0]
    return _first(item, _SCORE_KEYS) if isinstance(item, dict) else item


def _score(value: Any, dimension: Dimension) -> float | None:
    """Return a number, also one that stands in a string: ``"8"``, ``"8/10"``, ``"Score: 8"``."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value) if abs(value) < 1e6 and math.isfinite(value) else None
    if not isinstance(value, str):
        return None
    found = _NUMBER.fullmatch(value)
    if found is None:
        return None
    if found[2] is not None and int(found[2]) != max(dimension.high, -dimension.low):
        return None  # another scale
    return float(found[1].replace("\u2212", "-"))


def _first(value: Mapping[str, Any], keys: Sequence[str]) -> Any:
    by_key = {_squash(key): item for key, item in value.items()}
    return next((by_key[key] for key in keys if key in by_key), None)


def _words(text: str) -> str:
    """Return a label as words in lower case: ``agent_1_evaluation`` becomes ``agent 1 ...``."""
    owned = re.sub(r"['’](?:s\b)?", "", text.lower())
    return " ".join(re.sub(r"[\W_]+", " ", owned).split())


def _squash(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.lower())
