"""HGPO: turns compared where their last observations are the same, at every depth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import make_tokens, make_turns

from creditrl.errors import ConfigError, CreditInputError
from creditrl.trainers.credit.history_group import (
    HistoryGroupConfig,
    history_group,
    same_history,
)
from creditrl.trainers.methods.gigpo import GiGPO, GiGPOConfig
from creditrl.trainers.methods.grpo import GRPO, GRPOConfig
from creditrl.trainers.methods.hgpo import HGPO, HGPOConfig

# Three episodes of two turns. All begin in state 1. Two come to state 3 from there, by different
# rewards; the third is in state 3 at its second turn too, but began in state 2.
STATES = [1, 3, 1, 3, 2, 3]
TURNS = make_turns(
    reward=[0, 1, 0, 0, 0, 2], episode=[0, 0, 1, 1, 2, 2], state=STATES, group=[0] * 6
)
TOKENS = make_tokens(range(6))


def test_histories_are_told_apart_up_to_their_length():
    episode = np.array([0, 0, 1, 1, 2, 2])
    state = np.array(STATES)
    assert len(set(same_history(state, episode, 0))) == 1
    np.testing.assert_array_equal(same_history(state, episode, 1) == 2, np.array(STATES) == 3)
    two = same_history(state, episode, 2)
    # (1,3) twice, (2,3) once; beginnings (-,1) twice and (-,2).
    assert two[1] == two[3] != two[5]
    assert two[0] == two[2] != two[4]


def test_levels_are_weighed_and_empty_ones_dropped():
    # gamma 1, mean only, H = 1: levels k = 1 (weight 2) and k = 2 (weight 3).
    # Returns: turn 0: 1, 1: 1, 2: 0, 3: 0, 4: 2, 5: 2.
    # k = 1: state 1: {1, 0} -> +-1/2; state 3: {1, 0, 2}, mean 1 -> 0, -1, 1; state 2 alone -> 0.
    # k = 2: (-,1): +-1/2; (1,3): {1, 0} -> +-1/2; others alone.
    # turn 0: both levels 1/2. turn 1: k=1 is exactly 0, dropped: 1/2. turn 3: (2 * -1 + 3 * -1/2)
    # / 5 = -0.7. turn 5: only k = 1: 1.
    cfg = HistoryGroupConfig(history=1, gamma=1.0, normalise="mean")
    np.testing.assert_allclose(
        history_group(TURNS, cfg), [0.5, 0.5, -0.5, -0.7, 0.0, 1.0], atol=1e-6
    )


def test_the_deviation_is_the_biased_one():
    # State 3 alone: {1, 0, 2}: biased std sqrt(2/3); state 1: {1, 0}: 1/2.
    cfg = HistoryGroupConfig(history=0, gamma=1.0)
    s = np.sqrt(2 / 3)
    np.testing.assert_allclose(history_group(TURNS, cfg), [1, 0, -1, -1 / s, 0, 1 / s], atol=1e-4)


def test_the_base_group_compares_with_all_turns():
    # k = 0, weight 1: returns 1, 1, 0, 0, 2, 2, mean 1. k = 1, weight 2 as above.
    cfg = HistoryGroupConfig(history=0, gamma=1.0, normalise="mean", base_group=True)
    expected = [0.5, 0.0, (-1 + 2 * -0.5) / 3, (-1 + 2 * -1) / 3, 1.0, (1 + 2 * 1) / 3]
    np.testing.assert_allclose(history_group(TURNS, cfg), expected, atol=1e-6)


def test_it_is_neither_grpo_nor_gigpo():
    credit = HGPO(HGPOConfig(invalid_penalty=0.0)).credit(TURNS, TOKENS)
    assert not np.allclose(credit.advantage_N, GRPO(GRPOConfig()).credit(TURNS, TOKENS).advantage_N)
    step = GiGPO(GiGPOConfig()).credit(TURNS, TOKENS).parts["step"]
    assert not np.allclose(credit.advantage_N, step)
    deeper = HGPO(HGPOConfig(history=0, invalid_penalty=0.0)).credit(TURNS, TOKENS)
    assert not np.allclose(credit.advantage_N, deeper.advantage_N)


def test_without_states_or_with_nonsense_it_says_so():
    with pytest.raises(CreditInputError, match="StateHash"):
        HGPO(HGPOConfig()).credit(make_turns([1, 0], [0, 1]), TOKENS)
    with pytest.raises(ConfigError, match="history=-1"):
        HistoryGroupConfig(history=-1)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(0, 3))
def test_the_order_of_episodes_does_not_matter_and_equal_returns_give_nothing(seed, history):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 5, size=6)
    episode = np.repeat(np.arange(6), lengths)
    state = rng.integers(1, 4, size=len(episode))
    reward = rng.integers(0, 3, size=len(episode)).astype(float)
    group = (np.arange(6) % 2)[episode]
    cfg = HistoryGroupConfig(history=history)
    credit = history_group(make_turns(reward, episode, group, state), cfg)
    order = rng.permutation(6)
    at = np.concatenate([np.flatnonzero(episode == e) for e in order])
    moved = make_turns(reward[at], np.repeat(np.arange(6), lengths[order]), group[at], state[at])
    np.testing.assert_allclose(history_group(moved, cfg), credit[at], atol=1e-5)
    flat = make_turns(np.zeros(len(episode)), episode, group, state)
    assert not history_group(flat, cfg).any()
