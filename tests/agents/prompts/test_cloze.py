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


def test_the_bare_form_ends_with_what_the_policy_saw():
    found = said(cloze(TURNS, 1, 0.0, WORDS, final="d", bare=True))
    after, before = [("user", "c"), ("assistant", "run"), ("user", "d")], [("assistant", "go")]
    assert found == [*after, ("user", "0.0"), ("user", "a"), *before, ("user", "b")]
    assert said(cloze(TURNS, 1, 0.0, WORDS, bare=True, told="lost"))[2] == ("user", "lost")


def test_the_reach_is_in_turns_and_the_final_observation_counts_as_one():
    def shown(lost, reach):
        found = cloze(TURNS, lost, 1.0, WORDS, final="d", bare=True, reach=reach)
        return [message.content for message in found]

    assert shown(2, 1) == ["d", "1.0", "b", "stay", "c"]
    assert shown(1, 1) == ["c", "run", "1.0", "a", "go", "b"]
    assert shown(1, 2) == ["c", "run", "d", "1.0", "a", "go", "b"]
    assert shown(0, 1) == ["b", "stay", "1.0", "a"]
