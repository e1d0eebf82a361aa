"""JSON as language models write it: in fences and prose, with commas too many and quotes too few.

:func:`read_json` reads what is plainly meant and invents nothing: of a text that is cut, only what
had come to its end is returned (a number at the very end may have lost its last digits).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Found", "read_json"]

_LONGEST = 200_000
_DEEPEST = 40
_MOST_OBJECTS = 32
_MOST_TRIES = 1_000

_THOUGHT = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_SPACE = re.compile(r"(?:\s|\\[nrt]|//[^\n]*|#[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER = re.compile(r"[+\-\u2212]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_PIECE = r'(?:[^\s,:\[\]{}()"\\]|\\(?![nrt]))+'
_BARE = re.compile(rf"{_PIECE}(?: +{_PIECE})*")
_WS = r"(?:\s|\\[nrt])*"
_AFTER_TEXT = re.compile(rf"{_WS}(?:[\]}})]|:|$)")
_AFTER_COMMA = re.compile(
    rf"""{_WS},{_WS}(?:["'“‘\[\]{{}}()]|[+\-\u2212]?\d|(?:true|false|null)\b|$|\w+\s*:)""", re.I
)
_NEXT_KEY = re.compile(rf"""{_WS}["'“‘][^"'“”‘’\n]{{1,60}}["'”’]\s*:""")
_NEXT_SCORE = re.compile(r"\s+[+\-\u2212]?\d+(?:\.\d+)?\s*[\]})]")
_CLOSING = {'"': '"', "'": "'", "“": '”"', "‘": "’'", "”": '”"'}
_BEHIND_VALUES = ("", *",;}])`")
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}

_NOTHING = object()


@dataclass(frozen=True, slots=True)
class Found:
    """An object in a text."""

    value: dict[str, Any]
    strict: bool
    """Whether it is JSON to the letter."""
    alone: bool
    """Whether the text is this object and nothing else."""
    before: str
    """The text between the object before it (or the text's beginning) and this one."""


def read_json(text: str) -> list[Found]:
    """Return the objects in a text, in their order; takes any string.

    A key that stands twice in one object with different values is left out: nobody can tell which
    of them was meant. Thoughts (``<think>``) are no part of an answer, also where they have no end.
    A text that was written as a JSON string once more is read as what it stands for.
    """
    text = text[:_LONGEST].strip()
    try:
        value = json.loads(text, object_pairs_hook=_merged)
        if isinstance(value, dict):
            return [Found(value, strict=True, alone=True, before="")]
    except (ValueError, RecursionError):
        pass
    text = _without_thoughts(text)
    return _objects(text) or _objects(_unquoted(text))


def _without_thoughts(text: str) -> str:
    """Return what is not between ``<think>`` and ``</think>``, of which either may be missing."""
    kept: list[str] = []
    at = 0
    opened = -1
    begun = False
    for tag in _THOUGHT.finditer(text):
        if not tag[1]:
            opened = tag.start() if opened < 0 else opened
        elif opened >= 0:
            kept.append(text[at:opened])
            at, opened = tag.end(), -1
        elif not begun:
            kept, at, begun = [], tag.end(), True  # it began in the prompt
    if opened >= 0 and not ("".join(kept) + text[at:opened]).strip():
        return ""
    return "".join(kept) + text[at:]


def _unquoted(text: str) -> str:
    """Return what a text stands for that is the inside of a JSON string; empty where it is none."""
    text = text.removeprefix('"').removesuffix('"') if text.startswith('"') else text
    if '\\"' not in text:
        return ""
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return ""


def _objects(text: str) -> list[Found]:
    """Return the objects in a text without thoughts."""
    found: list[Found] = []
    decoder = json.JSONDecoder(object_pairs_hook=_merged)
    at = end = 0
    torn = False
    tries = 0
    while tries < _MOST_TRIES and len(found) < _MOST_OBJECTS and (at := text.find("{", at)) >= 0:
        start = at
        if torn and text[text.rfind("\n", 0, at) + 1 : at].strip():
            at += 1  # perhaps in a string of the object that broke off
            continue
        tries += 1
        try:
            value, at = decoder.raw_decode(text, start)
            strict = True
        except (ValueError, RecursionError):
            reader = _Reader(text, start)
            value, strict = reader.value(0), False
            torn = torn or (reader.torn and reader.has_key)
            at = reader.at if reader.has_key else start + 1  # words in braces are no object
        if isinstance(value, dict) and value:
            found.append(Found(value, strict, alone=False, before=text[end:start]))
        if at > start + 1:
            end = at
    return found


def _merged(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    torn = set()
    for key, value in pairs:
        if key in merged and merged[key] != value:
            torn.add(key)
        merged[key] = value
    return {key: value for key, value in merged.items() if key not in torn}


class _Reader:
    """Reads one value, as far as it can be read."""

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at
        self.has_key = False
        self.torn = False
        """It breaks off: from here on nobody knows what is in a string and what is not."""

    def value(self, depth: int) -> Any:
        """Return the value here, or ``_NOTHING`` where there is none or it is cut."""
        self._space()
        c = self._here()
        if depth > _DEEPEST or c == "":
            return _NOTHING
        if c == "{":
            return self._object(depth)
        if c in "[(":
            return self._list(depth)
        if c in _CLOSING:
            return self._string()
        number = _NUMBER.match(self.text, self.at)
        bare = _BARE.match(self.text, self.at)
        if bare is None:
            return _NOTHING
        self.at = bare.end()
        if self.at == len(self.text):
            return _NOTHING  # cut: 1 may have been 10
        if number is not None and number.end() == bare.end():
            digits = number[0].replace("\u2212", "-")
            return float(digits) if re.search("[.eE]", digits) else int(digits)
        word = bare[0].strip()
        return _WORDS.get(word.lower(), word)

    def _object(self, depth: int) -> dict[str, Any]:
        pairs: list[tuple[str, Any]] = []
        self.at += 1
        while True:
            self._space(",;")
            c = self._here()
            if c in ("", "}"):
                self.at += c == "}"
                return _merged(pairs)
            if c in "])":  # one too many
                self.at += 1
                continue
            key = self._string() if c in _CLOSING else self._bare_key()
            self._space()
            if not isinstance(key, str) or self._here() != ":":
                if self._here() == "" and c in _CLOSING:
                    return _merged(pairs)  # cut
                # Words go on: what looked like a value stood in a string with quotes of its own.
                self.torn = True
                return _merged(pairs[:-1])
            self.at += 1
            self.has_key = True
            value = self.value(depth + 1)
            ends = self._value_ends()
            if self.torn or not ends or (value is _NOTHING and self._here() not in (",", "}")):
                self.torn = self.torn or self._here() != ""
                if ends and isinstance(value, dict):
                    pairs.append((key, value))
                return _merged(pairs)
            if value is not _NOTHING:
                pairs.append((key, value))

    def _value_ends(self) -> bool:
        """Return whether an object can go on, or end, here."""
        if _NEXT_KEY.match(self.text, self.at):
            return True  # a comma is missing
        self._space()
        return self._here() in _BEHIND_VALUES

    def _list(self, depth: int) -> Any:
        items: list[Any] = []
        self.at += 1
        while True:
            self._space(",;")
            c = self._here()
            if c == "":
                return _NOTHING  # what is missing might be the score
            if c in "])":
                self.at += 1
                return items
            if c == "}":  # the list's own end is missing
                return items
            before = self.at
            value = self.value(depth + 1)
            if isinstance(value, str) and self._is_key():
                # The list's own end is missing here, too; before it stands the score.
                self.at = before
                if _has_number(items[-1:]):
                    return items
                self.torn = True
                return _NOTHING
            if value is not _NOTHING:
                bare = isinstance(value, str) and c not in _CLOSING
                if self.torn or (bare and (_has_number(items) or self._here() in _CLOSING)):
                    # "it went for "10", 8 at least", 7: the score is further on.
                    self.torn = True
                    return _NOTHING
                items.append(value)
            elif self.at == before:
                return _NOTHING

    def _string(self) -> Any:
        """Read a string; quotes in it need not be escaped where the rest shows what they are."""
        text, closing = self.text, _CLOSING[self.text[self.at]]
        shown: list[str] = []
        at = self.at + 1
        while at < len(text):
            c = text[at]
            if c == "\\" and at + 1 < len(text):
                shown.append(self._escaped(at))
                at += 6 if text[at + 1] == "u" and len(shown[-1]) == 1 else 2
                continue
            if c in closing and self._closes(at + 1):
                if "\n```" in text[self.at : at]:
                    break  # it was cut, and what was read is of the next object
                self.at = at + 1
                # Two escapes may stand for one character beyond the first 65,536.
                pairs = "".join(shown).encode("utf-16", "surrogatepass")
                return pairs.decode("utf-16", "replace")
            shown.append(c)
            at += 1
        self.torn = at < len(text)
        self.at = len(text)
        return _NOTHING

    def _escaped(self, at: int) -> str:
        c = self.text[at + 1]
        if c == "u":
            digits = self.text[at + 2 : at + 6]
            return chr(int(digits, 16)) if re.fullmatch("[0-9a-fA-F]{4}", digits) else "\\u"
        return _ESCAPES.get(c, c)

    def _closes(self, at: int) -> bool:
        return any(
            pattern.match(self.text, at)
            for pattern in (_AFTER_TEXT, _AFTER_COMMA, _NEXT_KEY, _NEXT_SCORE)
        )

    def _is_key(self) -> bool:
        """Return whether what was just read stands before a value."""
        self._space()
        return self._here() == ":"

    def _bare_key(self) -> Any:
        bare = _BARE.match(self.text, self.at)
        if bare is None:
            return _NOTHING
        self.at = bare.end()
        return bare[0]

    def _space(self, more: str = "") -> None:
        """Skip spaces, comments, and further characters."""
        while True:
            space = _SPACE.match(self.text, self.at)
            self.at = space.end() if space else self.at
            if not more or self._here() not in more or self._here() == "":
                return
            self.at += 1

    def _here(self) -> str:
        return self.text[self.at : self.at + 1]


def _has_number(items: Sequence[Any]) -> bool:
    return any(isinstance(item, (int, float)) for item in items)
