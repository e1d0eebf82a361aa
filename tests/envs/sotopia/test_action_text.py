"""Actions as text, read and written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from creditrl.envs.sotopia.action_text import (
    ACTION_FORMS,
    LONGEST_ARGUMENT,
    action_text,
    read_action,
)
from creditrl.envs.sotopia.dialogue import ACTION_KINDS, NOTHING, Action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("say: Hello there", Action("speak", "Hello there")),
        ("  SAY:Hello: you", Action("speak", "Hello: you")),
        ("nonverbal: nods", Action("non-verbal communication", "nods")),
        ("do: hands over the lamp", Action("action", "hands over the lamp")),
        ("say: two\n\n  lines", Action("speak", "two lines")),
        ("leave", Action("leave")),
        (" Leave\n", Action("leave")),
        ("nothing", NOTHING),
        ("none", NOTHING),
        ('{"action_type": "speak", "argument": "Hi"}', Action("speak", "Hi")),
        ('{"action_type": "leave", "argument": ""}', Action("leave")),
        ('{"action_type": "none"}', NOTHING),
        ('{"argument": null, "action_type": "leave"}', Action("leave")),
        ('```json\n{"action_type": "action", "argument": "waves"}\n```', Action("action", "waves")),
        ("speak: Hi", Action("speak", "Hi")),
        (r'{"action_type": "speak", "argument": "a\ud83db"}', Action("speak", "a?b")),
        ("Non-verbal communication: smiles", Action("non-verbal communication", "smiles")),
    ],
)
def test_forms_of_an_action(text: str, action: Action) -> None:
    assert read_action(text) == (action, "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "unparsed"),
        ("hello", "unparsed"),
        ("say:", "unparsed"),
        ("say:  \n", "unparsed"),
        ("say hello", "unparsed"),
        ("leave || leave", "unparsed"),
        ("I left my keys", "unparsed"),
        ('{"action_type": "dance", "argument": ""}', "unknown"),
        ('{"action_type": "speak", "argument": 3}', "unparsed"),
        ('{"action_type": ["speak"], "argument": "x"}', "unparsed"),
        ('{"action_type": "speak"', "unparsed"),
        ('{"action_type": "speak", "argument": ""}', "unparsed"),
        ("{" * 100_000, "unparsed"),
    ],
)
def test_what_is_no_action(text: str, reason: str) -> None:
    assert read_action(text) == (None, reason)


def test_long_speeches_are_cut() -> None:
    action, reason = read_action("say: " + "a" * 5_000)
    assert reason == "" and action == Action("speak", "a" * LONGEST_ARGUMENT)


def test_the_forms_that_are_told_are_the_forms_that_are_read() -> None:
    assert [read_action(form)[0].kind for form in ACTION_FORMS] == [  # type: ignore[union-attr]
        *("speak", "non-verbal communication", "action", "leave", "none"),
    ]


@given(st.sampled_from(ACTION_KINDS), st.text(max_size=60))
def test_both_forms_are_read_back(kind: str, argument: str) -> None:
    line = " ".join(argument.split())
    if kind in ("none", "leave"):
        line = ""
    elif not line:
        return
    action = Action(kind, line)  # type: ignore[arg-type]
    assert read_action(action_text(action)) == (action, "")
    assert read_action(json.dumps({"action_type": kind, "argument": argument})) == (action, "")


@given(st.text())
def test_any_text_is_an_action_or_has_a_reason(text: str) -> None:
    action, reason = read_action(text)
    assert (action is None) == (reason in ("unparsed", "unknown"))
