from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from creditrl.trainers.credit.spread import (
    episodes_to_turns,
    first_turns,
    reward_on_last_token,
    tokens_per_turn,
    turn_sum,
    turns_to_tokens,
)


def test_credit_is_repeated_downwards():
    assert episodes_to_turns([1, 2], [0, 0, 1]).tolist() == [1, 1, 2]
    assert turns_to_tokens([1, 2, 3], [0, 2, 2]).tolist() == [1, 3, 3]
    assert turns_to_tokens([1, 2], []).shape == (0,)


def test_scores_are_summed_upwards():
    assert turn_sum([1, 2, 4], [0, 2, 2], 4).tolist() == [1, 0, 6, 0]
    assert tokens_per_turn([0, 2, 2], 4).tolist() == [1, 0, 2, 0]


def test_first_turns_of_episodes_with_turns():
    first_B, count_B = first_turns([0, 0, 3])
    assert first_B.tolist() == [0, 2] and count_B.tolist() == [2, 1]


def test_a_turns_reward_is_on_its_last_token():
    reward_M = reward_on_last_token([1, 2], [0, 0, 1, 1, 1], [0, 0])
    assert reward_M.tolist() == [0, 1, 0, 0, 2]
    assert reward_on_last_token([1, 2], [], [0, 0]).shape == (0,)


def test_the_reward_of_a_turn_without_tokens_goes_to_the_nearest_earlier_token():
    # Episode 0: turns 0 (2 tokens), 1 and 2 (none). Episode 1: turn 3 (none), 4 (1 token).
    # Turn 3 comes before any token of its episode: its reward 8 must not reach episode 0's tokens.
    reward_M = reward_on_last_token([1, 2, 4, 8, 16], [0, 0, 4], [0, 0, 0, 1, 1])
    assert reward_M.tolist() == [0, 7, 16]


@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=5), min_size=1, max_size=5),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=30)
def test_rewards_stay_within_their_episode_and_none_is_lost(tokens_of_turns, seed):
    tokens_N = np.concatenate([np.array(t) for t in tokens_of_turns])
    episode_N = np.repeat(np.arange(len(tokens_of_turns)), [len(t) for t in tokens_of_turns])
    turn_M = np.repeat(np.arange(len(tokens_N)), tokens_N)
    reward_N = np.random.default_rng(seed).normal(size=len(tokens_N))
    reward_M = reward_on_last_token(reward_N, turn_M, episode_N)
    for b, tokens_T in enumerate(tokens_of_turns):
        started = np.cumsum(tokens_T) > 0  # turns before the episode's first token are left out
        paid = reward_M[episode_N[turn_M] == b].sum() if len(turn_M) else 0.0
        assert abs(paid - reward_N[episode_N == b][started].sum()) < 1e-5
