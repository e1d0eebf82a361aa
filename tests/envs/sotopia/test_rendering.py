"""The text shown to each side: by hand, and against the published episodes."""

from __future__ import annotations

import pytest

from creditrl.envs.sotopia.dialogue import NOTHING, Action
from creditrl.envs.sotopia.profiles import Character, Combination, Relationship
from creditrl.envs.sotopia.rendering import (
    NEWS,
    bio,
    context,
    introduction,
    observation,
    turn_line,
    visible,
)

HELLO = Action("speak", "Hello")
NODS = Action("non-verbal communication", "nods")


def test_a_context_hides_the_others_private_parts_except_from_a_judge(
    combination: Combination,
) -> None:
    assert context(combination, 0).split("\n") == [
        "Scenario: Two people look at a lamp that is for sale.",
        "Participants: Ann Lee and Bo Diaz",
        "Ann Lee's background: Ann Lee is a 31-year-old female baker. She/her pronouns. Ann bakes "
        "at night. Personality and values description: Ann is calm. Ann's secrets: Ann cannot "
        "cook.",
        "Bo Diaz's background: Bo Diaz is a 40-year-old male pilot. He/him pronouns. Bo flies "
        "gliders. Personality and values description: Bo is bold.",
        "Ann Lee's goal: Sell it (it cost you 20)",
        "Bo Diaz's goal: Unknown",
    ]
    judges = context(combination, None)
    for part in ("Ann cannot cook.", "Bo fears heights.", "Sell it", "Buy it"):
        assert part in judges
    assert "Unknown" not in judges


def test_closer_people_know_more_but_nobody_knows_a_secret(make_combination):
    name, public = " Bo Diaz", " is a 40-year-old male pilot. He/him pronouns. Bo flies gliders."
    near = f"{name}{public} Personality and values description: Bo is bold."
    shown = ("", name, f"{name}{public}", near, near, near)  # from strangers to a family
    for relationship, told in zip(sorted(Relationship), shown, strict=True):
        cast = make_combination(relationship)
        assert f"Bo Diaz's background:{told}\n" in context(cast, 0)
        assert "Bo Diaz's background: Unknown\n" in context(cast, 0, "own")
        assert "Bo's secrets: Bo fears heights." in context(cast, 1, "own")


def test_a_character_without_details_has_no_gaps() -> None:
    plain = Character("x", "Kim", "Oh", 20, "Student")
    assert bio(plain, None) == "Kim Oh is a 20-year-old student."
    assert bio(plain, Relationship.FRIEND) == "Kim Oh is a 20-year-old student."


@pytest.mark.parametrize(
    ("marked", "to_0", "to_1", "to_judge"),
    [
        ("a <extra_info>b</extra_info> c", "a b c", "a b c", "a b c"),
        ("a <p viewer='agent_0'>b</p> c", "a b c", "a  c", "a b c"),
        ('a <p viewer="environment">b <strategy_hint>c</strategy_hint></p>', "a ", "a ", "a b c"),
        ("<root><p viewer='agent_1'>b</p></root>", "", "b", "b"),
        ("a <secret_note>b</secret_note> c", "a  c", "a  c", "a b c"),
        # Unclosed, closed twice, closed in the wrong order: all occur in upstream's data.
        ("a <extra_info>b", "a b", "a b", "a b"),
        ("a</extra_info> b", "a b", "a b", "a b"),
        ("<p viewer='agent_0'>a<extra_info>b</p>c</extra_info>", "abc", "c", "abc"),
        ("2 < 3 &amp; 4 &gt; 1", "2 < 3 & 4 > 1", "2 < 3 & 4 > 1", "2 < 3 & 4 > 1"),
        ("Crate & Barrel &amp; Co", "Crate & Barrel &amp; Co", *["Crate & Barrel &amp; Co"] * 2),
    ],
)
def test_visibility_tags_decide_who_sees_what(
    marked: str, to_0: str, to_1: str, to_judge: str
) -> None:
    assert (visible(marked, 0), visible(marked, 1), visible(marked, None)) == (to_0, to_1, to_judge)


def test_turns_are_shown_as_lines() -> None:
    names = ("Ann Lee", "Bo Diaz")
    assert turn_line(0, (HELLO, NOTHING), names) == 'Turn #0: Ann Lee said: "Hello"'
    assert turn_line(1, (NOTHING, NODS), names) == (
        "Turn #1: Bo Diaz [non-verbal communication] nods"
    )
    both = (HELLO, Action("leave"))
    assert (
        turn_line(2, both, names) == 'Turn #2: Ann Lee said: "Hello";Bo Diaz left the conversation'
    )
    assert turn_line(3, (NOTHING, NOTHING), names) == "Turn #3:"


def test_an_observation_shows_new_turns(combination: Combination) -> None:
    turns = ((HELLO, NOTHING), (NOTHING, HELLO), (NODS, NOTHING), (NOTHING, HELLO))
    head = introduction(combination, 0, "relationship")
    whole = observation(combination, 0, turns, seen=2, head=head)
    news = 'Turn #2: Ann Lee [non-verbal communication] nods\nTurn #3: Bo Diaz said: "Hello"\n'
    assert whole.startswith("You are Ann Lee.\nScenario: ")
    assert whole.endswith(
        '\n\nConversation so far:\nTurn #0: Ann Lee said: "Hello"\nTurn #1: Bo Diaz said: "Hello"\n'
        f"{NEWS}\n{news}You are at turn #4."
    )
    assert observation(combination, 0, turns, seen=2, whole=False) == f"{news}You are at turn #4."
    assert observation(combination, 1, turns[:1], head="You are Bo Diaz.") == (
        'You are Bo Diaz.\n\nConversation so far:\nTurn #0: Ann Lee said: "Hello"\n'
        "You are at turn #1."
    )
    assert observation(combination, 0, (), seen=0, note="Once more.", waits=True) == (
        f"The conversation starts.\n{NEWS}\nOnce more.\nIt is turn #0, and not yours."
    )
    over = observation(combination, 0, turns, seen=2, ending="turn_limit+stale", whole=False)
    assert over.endswith("The conversation is over: no turns are left, nobody had more to say.")


def test_contexts_and_turns_are_those_of_the_published_episodes(recorded) -> None:  # type: ignore[no-untyped-def]
    played = [episode for episode in recorded if episode.shown]
    assert len(played) >= 12
    lines = strangers = 0
    for episode in played:
        for side in (0, 1):
            first, *later = (shown[side] for shown in episode.shown)
            # Between upstream's first line and "Conversation Starts:"; goals may end with empty
            # lines.
            theirs = [t.strip() for t in first.strip().split("\n")[1:-1] if t.strip()]
            strangers += sum(line.endswith("'s background:") for line in theirs)
            assert context(episode.combination, side).split("\n") == theirs
            for number, text in enumerate(later):
                ours = turn_line(number, episode.turns[number], episode.combination.names)
                assert ours == text.strip()
                lines += 1
    assert lines == 2 * sum(len(episode.turns) for episode in played) >= 292
    assert strangers == 6  # the other side's background is empty
