"""Answers of all kinds of damage: the true scores or none; see ``damaged_answers``."""

from __future__ import annotations

import json
import random
import time

import pytest
from damaged_answers import KINDS, cases, draw, outcome, share_read

from creditrl.envs.sotopia.judge_answer import read_answer

NINES = "9" * 5000
ONE_SCORE = '{"agent_1": {"goal": ["x", 1]}}'


def assert_never_wrong(count: int, seed: int) -> None:
    came = [(case, outcome(case)) for case in cases(count, seed)]
    wrong = [case for case, what in came if what == "wrong"]
    assert not wrong, f"{len(wrong)} wrong, e.g. {wrong[0]}"
    assert share_read(came) >= 0.72


def test_no_kind_of_damaged_answer_gives_wrong_scores():
    assert len(KINDS) >= 150
    assert_never_wrong(4 * len(KINDS), seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_of_twenty_thousand_damaged_answers_none_gives_wrong_scores(seed):
    assert_never_wrong(20_000, seed)


def test_an_answer_that_is_cut_anywhere_gives_its_scores_or_none():
    drawn = draw(random.Random(3))
    text = json.dumps({"evaluations": drawn.entries()}, indent=1)
    for at in range(len(text)):
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
        *("this is the ", ". ", "1. ", '{"agent_1": {"goal": "score 3 '),
        '{"agent_1": [{"dimension": "goal", "score": 1}, ',
    ],
)
def test_reading_takes_time_in_proportion_to_length(unit):
    def seconds(length: int) -> float:
        text = f"{ONE_SCORE}\n{(unit * length)[:length]}\n{ONE_SCORE}"
        best = float("inf")
        for _ in range(2):
            began = time.process_time()
            assert read_answer(text, ("Ann Lee", "Bo Diaz")).problems
            best = min(best, time.process_time() - began)
        return best

    assert seconds(100_000) <= 15 * max(seconds(10_000), 0.01)
