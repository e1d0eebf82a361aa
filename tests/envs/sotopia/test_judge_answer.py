"""Damaged answers of every kind give the true scores or none; see ``damaged_answers``."""

from __future__ import annotations

import itertools
import json
import random
import time

import pytest
from damaged_answers import (
    AROUND,
    DAMAGES,
    FALSE,
    KINDS,
    LOOSE,
    OBJECTS,
    STYLES,
    cases,
    draw,
    outcome,
    share_read,
    text_of,
)

from creditrl.envs.sotopia.judge_answer import read_answer

NINES = "9" * 5000
ONE_SCORE = '{"agent_1": {"goal": ["x", 1]}}'
PLAIN = ("Samuel Anderson", "Finnegan O'Malley")
AS_ASKED = ("as asked", "indented", "compact", "no wrapper", "keys ", "dimensions ")
READABLE = [name for name in OBJECTS | LOOSE if name != "scores over ten"]
MENDED = """
commas at ends|commas after lists|no commas in lists|a comma missing|two commas|a colon missing
no commas behind lists|a brace missing|a bracket missing|an opening bracket missing|semicolons
a brace too many|a bracket too many|no closing braces|closing braces too many|a quote too many
no quotes around keys|no quotes at all|single quotes|some single quotes|curly quotes|backticks
some curly quotes|a line in a text|written line ends|comments|parentheses|arrows
wide punctuation|equals signs|colons in keys|minus signs|plus signs|doubled braces|entities
escaped underscores|bold keys|windows lines|odd spaces|invisible spaces|repeated|null reasons
repeated in fences|entries closed too often|lists unclosed|a list unclosed|wide digits
"""


def plain(write, seed):
    """Return a plain answer about two people with unambiguous names, and its drawn scores."""
    drawn = draw(random.Random(seed), PLAIN, plain=True)
    return text_of(write, drawn), drawn


def assert_read(text, drawn):
    reading = read_answer(text, drawn.names)
    assert reading.problems == () and reading.scores == drawn.truth, text
    return reading


@pytest.mark.parametrize("style", READABLE)
def test_a_plain_answer_of_every_json_style_is_read(style):
    for seed in range(4):
        reading = assert_read(*plain(STYLES[style], seed))
        if style.startswith(AS_ASKED) and style != "dimensions first, wrapped":
            assert not reading.repaired  # other keys are what the judge may use as well
        if style.startswith("scores ") and style != "scores and reasons apart":
            assert reading.repaired


@pytest.mark.parametrize("damage", [*MENDED.strip().replace("\n", "|").split("|")])
def test_a_plain_answer_with_an_unambiguous_fault_is_read(damage):
    for seed, style in itertools.product(range(4), ("as asked", "indented")):
        text, drawn = plain(OBJECTS[style], seed)
        assert_read(DAMAGES[damage](text, drawn.rng), drawn)


@pytest.mark.parametrize("around", [name for name in AROUND if name != "a quote"])
def test_text_around_a_plain_answer_is_ignored(around):
    for seed in range(4):
        text, drawn = plain(OBJECTS["indented"], seed)
        assert_read(AROUND[around](text, drawn.rng), drawn)


@pytest.mark.parametrize("kind", FALSE)
def test_a_plain_answer_that_contradicts_itself_is_refused(kind):
    for seed in range(4):
        text, drawn = plain(FALSE[kind], seed)
        assert read_answer(text, drawn.names).problems, text


def test_no_kind_of_damaged_answer_gives_wrong_scores():
    assert len(KINDS) >= 150
    came = [(case, outcome(case)) for case in cases(2 * len(KINDS), seed=0)]
    wrong = [case for case, what in came if what == "wrong"]
    assert not wrong, f"{len(wrong)} wrong, e.g. {wrong[0]}"
    assert share_read(came) >= 0.72


def test_an_answer_cut_anywhere_gives_its_scores_or_none():
    drawn = draw(random.Random(3))
    text = json.dumps({"evaluations": drawn.entries()}, indent=1)
    for at in range(0, len(text), 7):
        reading = read_answer(text[:at], drawn.names)
        assert reading.problems or reading.scores == drawn.truth
    assert read_answer(text[:-1], drawn.names).scores == drawn.truth


@pytest.mark.parametrize(
    "text",
    [
        '{"agent_1": ' * 900 + "1" + "}" * 900,
        "[" * 900 + '{"goal": 1}' + "]" * 900,
        f'{{"agent_{NINES}": {{"goal": {NINES}}}}}',
        f"{{agent_1: {{goal: {NINES}}}}}",
        '{"agent_1": {"goal": 1e999, "secret": -Infinity, "knowledge": "\\ud800"}}',
    ],
)
def test_no_text_is_an_error(text):
    assert read_answer(text, ("Ann Lee", "Bo Diaz")).problems


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        *("{", "}", '"', "\\", '{"a', '\n{"a": "x', '{"a": {', '{"a": ["x", ', "{x {x ", "{{"),
        *('{"a": 1}', "/* ", "```\n{", "<think>", "{..., ", '"}{"', "{'a': 'it's ", "&quot;"),
        *('"goal": ["x", 3], ', "goal: 7 ", "agent_1 is ", "score: ", "should be ", "example "),
        *("this is the ", ". ", "1. ", '{"agent_1": {"goal": "score 3 ', "</think><think>"),
        *('{"agent_1": [{"dimension": "goal", "score": 1}, ', '{"a": 1 b ', '"] '),
    ],
)
def test_parsing_takes_linear_time(unit):
    def seconds(length: int) -> float:
        text = f"{ONE_SCORE}\n{(unit * length)[:length]}\n{ONE_SCORE}"
        began = time.process_time()
        assert read_answer(text, ("Ann Lee", "Bo Diaz")).problems
        return time.process_time() - began

    # Quadratic time would be a factor of 100. The second try is for a busy machine.
    assert any(seconds(40_000) <= 40 * max(seconds(4_000), 0.004) for _ in range(2))
