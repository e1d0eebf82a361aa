"""Upstream's rules for endings, by hand and on every published episode; and actions as text."""

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
from creditrl.envs.sotopia.dialogue import (
    ACTION_KINDS,
    NOTHING,
    PUBLISHED_RULES,
    Action,
    Rules,
    Turns,
    cut_by_limit,
    ending,
    speakers,
    turns_of,
)

HELLO = Action("speak", "hello")
LEAVE = Action("leave")


def alternate(*actions: Action) -> Turns:
    """Return the turns of a round-robin dialogue."""
    return tuple((a, NOTHING) if k % 2 == 0 else (NOTHING, a) for k, a in enumerate(actions))


def test_a_dialogue_ends_at_its_limit_or_when_somebody_leaves_or_both() -> None:
    assert ending(alternate(*[HELLO] * 19), Rules()) == ""
    assert ending(alternate(*[HELLO] * 20), Rules()) == "turn_limit"
    assert ending(alternate(HELLO, LEAVE), Rules()) == "left"
    assert ending(((LEAVE, LEAVE),), Rules(order="simultaneous")) == "left"
    assert ending(alternate(HELLO, LEAVE), Rules(max_turns=2)) == "turn_limit+left"
    assert ending(alternate(NOTHING, NOTHING), Rules(max_turns=2)) == "turn_limit+stale"
    assert cut_by_limit("turn_limit")
    assert not any(map(cut_by_limit, ("", "left", "stale", "turn_limit+left")))


@pytest.mark.parametrize(
    ("actions", "over"),
    [
        # Messages, newest first, after "A speaks, B none | A none, B none": B, A, B are none, then
        # A spoke. Three trailing ones are more than two.
        ((HELLO, NOTHING), True),
        # "A none, B none" alone: two trailing ones.
        ((NOTHING,), False),
        # A spoke, B spoke, A does nothing: B none, A none, then B spoke. Two.
        ((HELLO, HELLO, NOTHING), False),
        ((HELLO, HELLO, NOTHING, HELLO), False),
        ((HELLO, HELLO, NOTHING, NOTHING), True),
        ((HELLO, HELLO, HELLO, NOTHING), True),
    ],
)
def test_a_silent_turn_of_the_other_side_counts_as_stale(
    actions: tuple[Action, ...], over: bool
) -> None:
    assert ending(alternate(*actions), Rules()) == ("stale" if over else "")


def test_the_stale_limit_can_be_set() -> None:
    assert ending(alternate(HELLO, NOTHING), Rules(max_stale=3)) == ""
    assert ending(alternate(NOTHING), Rules(max_stale=1)) == "stale"
    both = ((NOTHING, NOTHING), (NOTHING, HELLO), (NOTHING, NOTHING))
    assert ending(both, Rules(order="simultaneous")) == ""


def test_speaking_orders_are_round_robin_simultaneous_or_random() -> None:
    turns = [(True, False), (False, True), (True, False)]
    assert [speakers(Rules(), turn, 5) for turn in range(3)] == turns
    assert speakers(Rules(order="simultaneous"), 7, 5) == (True, True)
    rules = Rules(order="random")
    drawn = [speakers(rules, turn, 5) for turn in range(2_000)]
    assert all(a != b for a, b in drawn)
    # A fair coin: 2,000 draws lie within 4 standard deviations (89) of 1,000.
    assert abs(sum(a for a, _ in drawn) - 1_000) < 90
    # Equal on every machine: splitmix64 with seed 0 gives 0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4,
    # 0x06c45d188009454f, 0xf88bb8a8724c81ec (its published outputs): top bits 1, 0, 0, 1.
    assert [speakers(rules, turn, 0)[1] for turn in range(4)] == [True, False, False, True]


def test_turns_of_the_sides_add_up_to_the_limit() -> None:
    assert [turns_of(Rules(max_turns=5), side, 0) for side in (0, 1)] == [3, 2]
    assert [turns_of(Rules(max_turns=6), side, 0) for side in (0, 1)] == [3, 3]
    assert turns_of(Rules(order="simultaneous"), 1, 0) == 20
    drawn = Rules(order="random")
    assert turns_of(drawn, 0, 3) + turns_of(drawn, 1, 3) == 20


def test_every_published_episode_ends_at_its_recorded_turn_and_reason(recorded) -> None:  # type: ignore[no-untyped-def]
    assert len(recorded) >= 42
    for episode in recorded:
        reached = [ending(episode.turns[:k], PUBLISHED_RULES) for k in range(1, len(episode.turns))]
        assert not any(reached), episode.combination.id
        reason = ending(episode.turns, PUBLISHED_RULES)
        assert frozenset(reason.split("+")) == episode.reasons, episode.combination.id


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
def test_actions_can_be_written_in_several_forms(text: str, action: Action) -> None:
    assert read_action(text) == (action, "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "unparsed"),
        ("hello", "unparsed"),
        ("say:  \n", "unparsed"),
        ("say hello", "unparsed"),
        ("\u017fay: hello", "unparsed"),  # an old s, which case folding maps to ours
        ("leave || leave", "unparsed"),
        ('{"action_type": "dance", "argument": ""}', "unknown"),
        ('{"action_type": "speak", "argument": 3}', "unparsed"),
        ('{"action_type": ["speak"], "argument": "x"}', "unparsed"),
        ('{"action_type": "speak"', "unparsed"),
        ('{"action_type": "speak", "argument": ""}', "unparsed"),
        ("{" * 100_000, "unparsed"),
    ],
)
def test_texts_without_an_action_give_a_reason(text: str, reason: str) -> None:
    assert read_action(text) == (None, reason)


def test_the_documented_forms_are_the_parsed_forms() -> None:
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
