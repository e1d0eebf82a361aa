from __future__ import annotations

import string
from difflib import SequenceMatcher

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from creditrl.trainers.credit import turn_table
from creditrl.trainers.credit.step_group import StepGroupConfig, similar_states, step_group


@st.composite
def random_turns(draw):
    length_B = draw(st.lists(st.integers(1, 5), min_size=2, max_size=8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    episode_N = np.repeat(np.arange(len(length_B)), length_B)
    return turn_table(
        rng.normal(size=len(episode_N)),
        episode_N,
        state=rng.integers(2**62, 2**62 + 4, size=len(episode_N)),
        group=(rng.permutation(len(length_B)) % 3)[episode_N],
    )


def by_hand(turns, cfg):
    """The definition, turn by turn."""
    n = len(turns)
    return_N = [
        sum(
            cfg.gamma ** (k - i) * turns.reward_N[k]
            for k in range(i, n)
            if turns.episode_N[k] == turns.episode_N[i]
        )
        for i in range(n)
    ]
    credit = []
    for i in range(n):
        peers = [
            return_N[j]
            for j in range(n)
            if turns.group_N[j] == turns.group_N[i] and turns.state_N[j] == turns.state_N[i]
        ]
        centred = return_N[i] - np.mean(peers)
        if cfg.normalise == "mean-std" and len(peers) > 1:
            centred /= np.std(peers, ddof=1) + cfg.epsilon
        credit.append(centred if len(peers) >= cfg.min_group else 0.0)
    return credit


def test_step_group_compares_turns_that_left_the_same_state():
    # Two copies of a task share state 7 at their first turn; one ends in success.
    turns = turn_table(reward=[0, 1, 0, 0], episode=[0, 0, 1, 1], state=[7, 8, 7, 9])
    credit_N = step_group(turns, StepGroupConfig(gamma=1.0))
    np.testing.assert_allclose(credit_N, [0.5, 0.0, -0.5, 0.0])  # returns 1 and 0, mean 0.5
    # With gamma 1/2 the first turn's return is 1/2; with the std, +-0.25 / (0.5 / sqrt(2)).
    half = step_group(turns, StepGroupConfig(gamma=0.5))
    np.testing.assert_allclose(half, [0.25, 0, -0.25, 0])
    unit = step_group(turns, StepGroupConfig(gamma=0.5, normalise="mean-std"))
    np.testing.assert_allclose(unit, np.array([1, 0, -1, 0]) / np.sqrt(2), rtol=1e-5)


def test_epsilon_is_added_to_the_deviation():
    # Deviations of 1e-6, unbiased std sqrt(2) 1e-6, and epsilon of the same size.
    turns = turn_table([0, 2e-6], [0, 1], state=[7, 7])
    found = step_group(turns, StepGroupConfig(normalise="mean-std"))
    np.testing.assert_allclose(found, np.array([-1, 1]) / (np.sqrt(2) + 1), rtol=1e-6)


def test_given_returns_replace_discounted_ones():
    turns = turn_table(reward=[0, 1, 0, 0], episode=[0, 0, 1, 1], state=[7, 8, 7, 9])
    found = step_group(turns, StepGroupConfig(gamma=0.5), return_N=[3.0, 9.0, 1.0, 9.0])
    np.testing.assert_allclose(found, [1, 0, -1, 0])


def test_a_penalty_is_subtracted_from_a_turns_own_return_before_comparison():
    # Returns 1, 1 and 0 at state 7, one of them with 0.1 off: mean 1.9 / 3.
    turns = turn_table([0, 1, 0], [0, 0, 1], state=[7, 7, 7])
    found = step_group(turns, StepGroupConfig(gamma=1.0), penalty_N=[0, -0.1, 0])
    np.testing.assert_allclose(found, np.array([1, 0.9, 0]) - 1.9 / 3, rtol=1e-5)


def test_a_state_visited_twice_in_an_episode_counts_twice():
    # gamma 1: returns 1, 1, 0 at state 7; mean 2/3.
    turns = turn_table([0, 1, 0], [0, 0, 1], state=[7, 7, 7])
    np.testing.assert_allclose(
        step_group(turns, StepGroupConfig(gamma=1.0)), [1 / 3, 1 / 3, -2 / 3], rtol=1e-6
    )
    assert (step_group(turns, StepGroupConfig(gamma=1.0, min_group=4)) == 0).all()


@given(random_turns(), st.sampled_from(["mean", "mean-std"]), st.floats(0, 1))
@settings(max_examples=40)
def test_step_group_equals_its_definition_and_is_centred(turns, normalise, gamma):
    cfg = StepGroupConfig(gamma=gamma, normalise=normalise)
    credit_N = step_group(turns, cfg)
    np.testing.assert_allclose(credit_N, by_hand(turns, cfg), rtol=1e-3, atol=1e-4)
    pairs = set(zip(turns.group_N.tolist(), turns.state_N.tolist(), strict=True))
    for group, state in pairs:
        members = (turns.group_N == group) & (turns.state_N == state)
        assert abs(credit_N[members].sum()) < 1e-4
        if members.sum() == 1:
            assert credit_N[members] == 0


@pytest.mark.parametrize("normalise", ["mean", "mean-std"])
def test_equal_returns_and_no_turns_give_zero_credit(normalise):
    cfg = StepGroupConfig(normalise=normalise)
    turns = turn_table([0.1] * 12, np.repeat(np.arange(4), 3), state=[1, 2, 3] * 4)
    assert (step_group(turns, cfg) == 0).all()
    assert step_group(turn_table([], [], state=[]), cfg).shape == (0,)


def test_similar_texts_of_a_group_are_one_state():
    # difflib: "abcdefghij" and "abcdefghiX" share 9 of 10 characters each: 18 / 20 = 0.9.
    texts = ["abcdefghij", "abcdefghiX", "abcdefghij", "ZbcdefghiX", "abcdefghiX"]
    group = np.array([0, 0, 0, 0, 1])
    assert similar_states(texts, group, 0.9).tolist() == [0, 0, 0, 1, 2]  # groups share no state
    assert similar_states(texts, group, 0.95).tolist() == [0, 1, 0, 2, 3]
    # A block out of order counts 0, as in the released code.
    assert similar_states(["abcd", "bcda"], np.zeros(2, int), 0.75).tolist() == [0, 0]
    assert similar_states(["abcd", "cdab"], np.zeros(2, int), 0.75).tolist() == [0, 1]
    # The fourth is 0.9 like the second, but the state is told by its first text (0.8).
    assert similar_states(texts[1:4], group[:3], 0.9).tolist() == [0, 0, 0]


@settings(max_examples=60)
@given(
    st.lists(st.text("ab ", max_size=8), max_size=8),
    st.sampled_from([0.3, 0.6, 0.95, 1.0]),
)
def test_similar_states_are_difflibs(texts, threshold):
    firsts: list[tuple[str, int]] = []
    expected = []
    for text in texts:
        alike = [
            n for first, n in firsts if SequenceMatcher(None, text, first).ratio() >= threshold
        ]
        if not alike:
            firsts.append((text, len(firsts)))
        expected.append(alike[0] if alike else len(firsts) - 1)
    found = similar_states(texts, np.zeros(len(texts), int), threshold)
    assert found.tolist() == expected


LETTERS = string.ascii_letters + string.digits + ".,;:-+*/"


@pytest.mark.parametrize(
    ("first", "second", "threshold"),
    [
        # 199 and 201 characters: 198 equal ones of each, 396 / 400.
        ("x" + "ab" * 99, "y" + "ab" * 100, 0.9),
        # 211 and 281: 210 equal ones of each, 420 / 492. With 3 and 4 times each of 70 characters.
        ("(" + LETTERS * 3, ")" + LETTERS * 4, 0.8),
    ],
)
def test_long_texts_are_compared_in_the_authors_order(first, second, threshold):
    # From 200 characters on, difflib ignores the frequent characters of its second text: those that
    # occur more than 1 + 1 % of its length times. That is all of `second`, and none of `first`. The
    # authors' function, run on the same texts, gave these numbers: the state's text comes second.
    group = np.zeros(2, int)
    assert similar_states([first, second], group, threshold).tolist() == [0, 0]
    assert similar_states([second, first], group, threshold).tolist() == [0, 1]


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([0, 1, 2, 3, 5]), min_size=30, max_size=45),
    st.lists(st.tuples(st.integers(0, 44), st.sampled_from(["", "wall", "a"])), max_size=4),
    st.sampled_from([0.3, 0.6, 0.9]),
)
def test_no_long_text_is_passed_over_before_difflib_sees_it(words, changes, threshold):
    # The distance by which most texts are told apart bounds difflib's ratio, ignored characters or
    # not: the result is difflib's alone.
    named = ["drawer", "shelf 1", "lamp", "bed 22", "wall", "pen"]
    one = [named[word] for word in words]
    other = list(one)
    for place, word in changes:
        other[place % len(other)] = word
    first, text = " ".join(one), " ".join(other)
    alike = SequenceMatcher(None, text, first).ratio() >= threshold
    found = similar_states([first, text], np.zeros(2, int), threshold)
    assert found.tolist() == [0, 0 if alike or text == first else 1]
