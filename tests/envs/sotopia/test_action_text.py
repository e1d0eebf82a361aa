"""Actions as text, read and written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
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
        (" Leave\n", Action("leave")),
        ("none", NOTHING),
        ('{"action_type": "none"}', NOTHING),
        ('{"argument": null, "action_type": "leave"}', Action("leave")),
        ('```json\n{"action_type": "action", "argument": "waves"}\n```', Action("action", "waves")),
        ("speak: Hi", Action("speak", "Hi")),
        (r'{"action_type": "speak", "argument": "a\ud83db"}', Action("speak", "a?b")),
        ("say: " + "a" * 5_000, Action("speak", "a" * LONGEST_ARGUMENT)),
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
        ("say:  \n", "unparsed"),
        ("say hello", "unparsed"),
        ("leave || leave", "unparsed"),
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


def test_the_forms_that_are_told_are_the_forms_that_are_read() -> None:
    assert [read_action(form)[0].kind for form in ACTION_FORMS] == [  # type: ignore[union-attr]
        *("speak", "non-verbal communication", "action", "leave", "none"),
    ]


@settings(max_examples=30)
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
