"""The prompt of HISR's hindsight model: a finished trajectory with one missing turn."""

from __future__ import annotations

from creditrl.agents.prompts.cloze import BLANK, cloze
from creditrl.envs.prompt import Ask
from creditrl.envs.words import words_for

WORDS = words_for(Ask(observation="", env_id="Toy-v0"))
TURNS = [("a", "go"), ("b", "stay"), ("c", "run")]


def said(messages):
    return [(message.role, message.content) for message in messages]


def test_the_missing_reply_is_a_blank_and_everything_else_is_shown():
    found = said(cloze(TURNS, 1, 1.0, WORDS, final="d"))
    assert found[1:-1] == [
        ("assistant", "OK"),
        *(("user", "a"), ("assistant", "go")),
        *(("user", "b"), ("assistant", BLANK)),
        *(("user", "c"), ("assistant", "run")),
    ]
    role, question = found[-1]
    assert role == "user" and question.startswith("d\n\n") and "is 1.0." in question
    # Roles alternate, as chat templates require.
    assert [role for role, _ in found] == ["user", "assistant"] * 4 + ["user"]
    assert not any("stay" in content for _, content in found)


def test_the_reach_is_in_turns_and_the_final_observation_counts_as_one():
    def shown(lost, reach):
        found = cloze(TURNS, lost, 1.0, WORDS, final="d", reach=reach)[2:-1]
        return [message.content for message in found]

    assert shown(2, 1) == ["b", "stay", "c", BLANK]
    assert shown(1, 1) == ["a", "go", "b", BLANK, "c", "run"]
    assert shown(0, 1) == ["a", BLANK, "b", "stay"]
    ends = [
        cloze(TURNS, lost, 1.0, WORDS, final="d", reach=reach)[-1].content.startswith("d\n\n")
        for lost, reach in ((2, 1), (1, 1), (1, 2), (0, 1))
    ]
    assert ends == [True, False, True, False]
