"""SPA's lines are found as its regular expressions find them."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from creditrl.envs.virtualhome import spa

TWO = re.compile(r"\[(.*?)\]|\<(.*?)\>|\((.*?)\)")
ONE = re.compile(r"\[([^]]+)\]|\<([^>]+)\>|\(([^)]+)\)")
PARAMETER = re.compile(r"\<(.+?)\>\s*\((.+?)\)")


@settings(max_examples=50)
@given(st.text("[]<>() \na1", max_size=16))
def test_brackets_are_found_as_spa_finds_them(text: str) -> None:
    parts = [part for match in TWO.findall(text) for part in match if part]
    assert [part for part in spa.bracketed(text) if part] == parts
    parts = [a or b or c for a, b, c in ONE.findall(text)]
    assert [part for part in spa.bracketed(text, within_line=False) if part] == parts
    assert list(spa.bracketed(text, "[")) == re.findall(r"\[(.*?)\]", text)


@settings(max_examples=50)
@given(st.text("<<>>(() \na1", max_size=16))
def test_numbers_are_found_as_spa_finds_them(text: str) -> None:
    numbers, rest = [], text
    while (found := PARAMETER.search(rest)) is not None:
        numbers.append(found[2])
        rest = rest[found.end(2) :]
    assert list(spa.numbers(text)) == numbers
