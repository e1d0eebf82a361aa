from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from creditrl.errors import ConfigError, CreditInputError
from creditrl.trainers.losses.aggregate import Aggregate, aggregation_weights

AGGREGATES = get_args(Aggregate)

# Episode 0: turn 0 of 2 tokens, turn 1 of 1. Episode 1: turn 2 of 3 tokens.
TURN_M = np.array([0, 0, 1, 2, 2, 2])
EPISODE_M = np.array([0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        ("token-mean", [1 / 6] * 6),
        ("seq-mean-token-sum", [1 / 2] * 6),
        ("seq-mean-token-mean", [1 / 6] * 6),  # 1/2 * 1/3 in both episodes
        # Episode 0: 1/2 * 1/2 per turn, over 2 and 1 tokens; episode 1: 1/2 over 3 tokens.
        ("turn-mean", [1 / 8, 1 / 8, 1 / 4, 1 / 6, 1 / 6, 1 / 6]),
        # 1/3 per turn, over 2, 1 and 3 tokens.
        ("batch-turn-mean", [1 / 6, 1 / 6, 1 / 3, 1 / 9, 1 / 9, 1 / 9]),
    ],
)
def test_weights_by_hand(aggregate, expected):
    np.testing.assert_allclose(aggregation_weights(aggregate, TURN_M, EPISODE_M), expected)


@given(
    st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=5),
    st.sampled_from(AGGREGATES),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=30)
def test_weights_equal_nested_means(tokens_of_turns, aggregate, seed):
    rng = np.random.default_rng(seed)
    tokens_N = np.concatenate([np.array(t) for t in tokens_of_turns])
    episode_N = np.repeat(np.arange(len(tokens_of_turns)), [len(t) for t in tokens_of_turns])
    turn_M = np.repeat(np.arange(len(tokens_N)), tokens_N)
    episode_M, loss_M = episode_N[turn_M], rng.normal(size=len(turn_M))
    weighted = (aggregation_weights(aggregate, turn_M, episode_M) * loss_M).sum()
    per_episode = [loss_M[episode_M == b] for b in range(len(tokens_of_turns))]
    nested = {
        "token-mean": loss_M.mean(),
        "seq-mean-token-sum": np.mean([x.sum() for x in per_episode]),
        "seq-mean-token-mean": np.mean([x.mean() for x in per_episode]),
        "turn-mean": np.mean(
            [
                np.mean([loss_M[turn_M == t].mean() for t in np.flatnonzero(episode_N == b)])
                for b in range(len(tokens_of_turns))
            ]
        ),
        "batch-turn-mean": np.mean([loss_M[turn_M == t].mean() for t in range(len(tokens_N))]),
    }[aggregate]
    assert weighted == pytest.approx(nested, abs=1e-5)
    # The order of tokens and the numbers of turns and episodes do not matter.
    order = rng.permutation(len(turn_M))
    mixed = aggregation_weights(aggregate, 7 - 2 * turn_M[order], 100 + 3 * episode_M[order])
    np.testing.assert_allclose(
        mixed, aggregation_weights(aggregate, turn_M, episode_M)[order], rtol=1e-6
    )


def test_a_constant_divides_the_sum_of_a_sequence():
    weights = aggregation_weights("seq-mean-token-sum", TURN_M, EPISODE_M, length_divisor=10)
    np.testing.assert_allclose(weights, 1 / 20)  # two episodes


def test_no_tokens_give_no_weights_and_invalid_input_is_refused():
    for aggregate in AGGREGATES:
        assert aggregation_weights(aggregate, [], []).shape == (0,)
    with pytest.raises(ConfigError, match="Did you mean 'token-mean'"):
        aggregation_weights("token_mean", TURN_M, EPISODE_M)
    with pytest.raises(CreditInputError, match="equal length"):
        aggregation_weights("token-mean", TURN_M, EPISODE_M[:2])
    with pytest.raises(CreditInputError, match=r"turn_M has shape \(1, 6\)"):
        aggregation_weights("token-mean", TURN_M[None], EPISODE_M[None])
