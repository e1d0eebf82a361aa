from __future__ import annotations

from difflib import SequenceMatcher
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from creditrl.trainers.credit import turn_table
from creditrl.trainers.credit.step_group import StepGroupConfig, similar_states, step_group
from creditrl.types import TurnTable


def make_turns(reward, episode, state, group=None) -> TurnTable:
    return turn_table(reward, episode, state=state, group=group)


@st.composite
def random_turns(draw):
    length_B = draw(st.lists(st.integers(1, 5), min_size=2, max_size=8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    episode_N = np.repeat(np.arange(len(length_B)), length_B)
    return make_turns(
        rng.normal(size=len(episode_N)),
        episode_N,
        rng.integers(2**62, 2**62 + 4, size=len(episode_N)),
        (rng.permutation(len(length_B)) % 3)[episode_N],
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
    turns = make_turns(reward=[0, 1, 0, 0], episode=[0, 0, 1, 1], state=[7, 8, 7, 9])
    credit_N = step_group(turns, StepGroupConfig(gamma=1.0))
    np.testing.assert_allclose(credit_N, [0.5, 0.0, -0.5, 0.0])  # returns 1 and 0, mean 0.5
    # With gamma 1/2 the first turn's return is 1/2; with the std, +-0.25 / (0.5 / sqrt(2)).
    half = step_group(turns, StepGroupConfig(gamma=0.5))
    np.testing.assert_allclose(half, [0.25, 0, -0.25, 0])
    unit = step_group(turns, StepGroupConfig(gamma=0.5, normalise="mean-std"))
    np.testing.assert_allclose(unit, np.array([1, 0, -1, 0]) / np.sqrt(2), rtol=1e-5)


def test_epsilon_is_added_to_the_deviation():
    # Deviations of 1e-6, unbiased std sqrt(2) 1e-6, and epsilon of the same size.
    turns = make_turns([0, 2e-6], [0, 1], [7, 7])
    found = step_group(turns, StepGroupConfig(normalise="mean-std"))
    np.testing.assert_allclose(found, np.array([-1, 1]) / (np.sqrt(2) + 1), rtol=1e-6)


def test_ready_returns_take_the_place_of_discounted_ones():
    turns = make_turns(reward=[0, 1, 0, 0], episode=[0, 0, 1, 1], state=[7, 8, 7, 9])
    found = step_group(turns, StepGroupConfig(gamma=0.5), return_N=[3.0, 9.0, 1.0, 9.0])
    np.testing.assert_allclose(found, [1, 0, -1, 0])


def test_a_penalty_comes_off_a_turns_own_return_before_it_is_compared():
    # Returns 1, 1 and 0 at state 7, one of them with 0.1 off: mean 1.9 / 3.
    turns = make_turns([0, 1, 0], [0, 0, 1], [7, 7, 7])
    found = step_group(turns, StepGroupConfig(gamma=1.0), penalty_N=[0, -0.1, 0])
    np.testing.assert_allclose(found, np.array([1, 0.9, 0]) - 1.9 / 3, rtol=1e-5)


def test_a_state_of_another_group_is_another_state():
    turns = make_turns([1, 0, 1, 0], [0, 1, 2, 3], [7, 7, 7, 7], group=[0, 1, 1, 0])
    np.testing.assert_allclose(step_group(turns, StepGroupConfig()), [0.5, -0.5, 0.5, -0.5])


def test_a_state_visited_twice_in_an_episode_counts_twice():
    # gamma 1: returns 1, 1, 0 at state 7; mean 2/3.
    turns = make_turns([0, 1, 0], [0, 0, 1], [7, 7, 7])
    np.testing.assert_allclose(
        step_group(turns, StepGroupConfig(gamma=1.0)), [1 / 3, 1 / 3, -2 / 3], rtol=1e-6
    )
    assert (step_group(turns, StepGroupConfig(gamma=1.0, min_group=4)) == 0).all()


@given(random_turns(), st.sampled_from(["mean", "mean-std"]), st.floats(0, 1))
@settings(max_examples=60)
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
def test_equal_returns_give_zero_credit(normalise):
    turns = make_turns([0.1] * 12, np.repeat(np.arange(4), 3), [1, 2, 3] * 4)
    assert (step_group(turns, StepGroupConfig(normalise=normalise)) == 0).all()


def test_no_turns():
    assert step_group(make_turns([], [], []), StepGroupConfig()).shape == (0,)


@pytest.mark.parametrize("p", [0.2, 0.5, 0.9])
def test_step_groups_do_not_depend_on_when_the_policy_stops(p):
    # The task of verl issue 7244 (see test_group.py): going on to a second turn, with probability
    # p, pays 1 there. Compared at the shared first state, the expected gradient is the true one,
    # p (1 - p), times (n - 1) / n for the member's own share in the mean.
    n, total = 3, 0.0
    for goes_on in product([0, 1], repeat=n):
        reward, episode, state = [], [], []
        for b, g in enumerate(goes_on):
            reward += [0, 1] if g else [0]
            episode += [b, b] if g else [b]
            state += [10, 20] if g else [10]
        credit_N = step_group(make_turns(reward, episode, state), StepGroupConfig(gamma=1.0))
        first_B = credit_N[np.array(state) == 10]
        score_B = np.array([1 - p if g else -p for g in goes_on])
        chance = np.prod([p if g else 1 - p for g in goes_on])
        total += chance * float(np.mean(first_B * score_B))
    assert total == pytest.approx(p * (1 - p) * (n - 1) / n, rel=1e-5)


def test_similar_texts_of_a_group_are_one_state():
    # difflib: "abcdefghij" and "abcdefghiX" share 9 of 10 characters each: 18 / 20 = 0.9.
    texts = ["abcdefghij", "abcdefghiX", "abcdefghij", "ZbcdefghiX", "abcdefghiX"]
    group = np.array([0, 0, 0, 0, 1])
    assert similar_states(texts, group, 0.9).tolist() == [0, 0, 0, 1, 2]  # groups share no state
    assert similar_states(texts, group, 0.95).tolist() == [0, 1, 0, 2, 3]
    # The fourth is 0.9 like the second, but the state is told by its first text (0.8).
    assert similar_states(texts[1:4], group[:3], 0.9).tolist() == [0, 0, 0]


def test_order_within_matched_texts_counts_as_in_the_released_code():
    # Indel distance would call these 0.75 alike (a common subsequence of 3 of 4); difflib takes
    # the longest block "bc" first, then "d" behind it: also 3. A block out of order counts 0.
    assert similar_states(["abcd", "bcda"], np.zeros(2, int), 0.75).tolist() == [0, 0]
    assert similar_states(["abcd", "cdab"], np.zeros(2, int), 0.75).tolist() == [0, 1]


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
            n for first, n in firsts if SequenceMatcher(None, first, text).ratio() >= threshold
        ]
        if not alike:
            firsts.append((text, len(firsts)))
        expected.append(alike[0] if alike else len(firsts) - 1)
    found = similar_states(texts, np.zeros(len(texts), int), threshold)
    assert found.tolist() == expected
