"""The optimal token baseline by hand. Beside verl's: tests/trainers/losses/test_peers.py."""

from __future__ import annotations

import numpy as np
import pytest

from creditrl.errors import CreditInputError
from creditrl.trainers.credit import optimal_token_baseline, turn_table
from creditrl.types import TokenTable

# Group 0: an episode of two turns with a token each, paid 1 and 3, and one turn of three tokens,
# paid 6. Group 1: two single tokens, paid 2 each, and group 2 one episode of a token, paid 5.
TURNS = turn_table([1, 3, 6, 2, 2, 5], ["a", "a", "b", "c", "d", "e"], group=[0, 0, 0, 1, 1, 2])
TURN_M = np.array([0, 1, 2, 2, 2, 3, 4, 5])
# Energies 1 - 2 pi + 0.5: 0.5 for probabilities of 0.5, 1 for 0.25.
LOGPROB_M = np.log(np.array([0.5, 0.5, 0.25, 0.25, 0.25, 0.5, 0.25, 0.5], dtype=np.float32))
SQUARE_M = np.full(8, 0.5)
TOKENS = TokenTable(TURN_M, LOGPROB_M - 9, old_logprob_M=LOGPROB_M)


def test_members_count_by_the_energy_of_their_tokens_so_far():
    # First tokens: returns 4 and 6, energies 1/2 and 1: (2 + 6) / 1.5 = 16/3. Second ones: returns
    # 3 and 6, energies up to there 1 and 2: (3 + 12) / 3 = 5. Third: one member.
    compared = [-4 / 3, -2, 2 / 3, 1]
    found = optimal_token_baseline(TURNS, TOKENS, SQUARE_M)
    np.testing.assert_allclose(found, [*compared, 0, 0, 0, 0], atol=1e-6)
    assert (found[4:] == 0).all() and found.dtype == np.float32
    raw = optimal_token_baseline(TURNS, TOKENS, SQUARE_M, singleton="raw")
    np.testing.assert_allclose(raw, [*compared, 6, 0, 0, 5], atol=1e-6)


def test_sampler_weights_scale_energies_by_their_squares():
    # The first token's 1/2 becomes 2: (2 * 4 + 6) / 3 = 14/3. Then 2.5 and 2: (7.5 + 12) / 4.5.
    weight_M = np.array([2.0, 1, 1, 1, 1, 1, 1, 1])
    found = optimal_token_baseline(TURNS, TOKENS, SQUARE_M, sampler_weight_M=weight_M)
    second = 19.5 / 4.5
    np.testing.assert_allclose(
        found[:4], [4 - 14 / 3, 3 - second, 6 - 14 / 3, 6 - second], atol=1e-6
    )


def test_without_energy_members_count_alike():
    # Certain tokens have no gradient, whatever their advantage is.
    turns = turn_table([0, 3], ["a", "b"], group=[0, 0])
    tokens = TokenTable(np.array([0, 1]), np.zeros(2), old_logprob_M=np.zeros(2, dtype=np.float32))
    assert optimal_token_baseline(turns, tokens, np.ones(2)).tolist() == [-1.5, 1.5]
    # Next to a token with energy they hardly count.
    certain = optimal_token_baseline(turns, tokens, np.array([1.0, 1.5]))
    np.testing.assert_allclose(certain, [-3, 0], atol=1e-6)
    assert certain[1] == pytest.approx(3 * 2e-8, rel=1e-3)  # 3 - 1.5 / (0.5 + 1e-8)
    one = TokenTable(np.zeros(1, int), np.zeros(1), old_logprob_M=np.zeros(1, dtype=np.float32))
    lone = turn_table([3], ["a"])
    assert optimal_token_baseline(lone, one, np.ones(1), singleton="raw").tolist() == [3]
    none = TokenTable(np.zeros(0, int), np.zeros(0), old_logprob_M=np.zeros(0, dtype=np.float32))
    assert optimal_token_baseline(turns, none, []).shape == (0,)


@pytest.mark.parametrize(
    ("square", "weight", "said"),
    [
        (SQUARE_M[:3], None, r"square_M has shape \(3,\): expected \(8,\)"),
        (np.append(SQUARE_M[:7], np.nan), None, "square_M is nan at row 7, in episode e"),
        (SQUARE_M, np.append(np.nan, SQUARE_M[:7]), "sampler_weight_M is nan .* in episode a"),
    ],
)
def test_columns_are_checked(square, weight, said):
    with pytest.raises(CreditInputError, match=said):
        optimal_token_baseline(TURNS, TOKENS, square, sampler_weight_M=weight)
    unscored = TokenTable(TURN_M, LOGPROB_M)
    with pytest.raises(CreditInputError, match="no column 'old_logprob_M': score the tokens"):
        optimal_token_baseline(TURNS, unscored, SQUARE_M)
