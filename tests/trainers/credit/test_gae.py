from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from creditrl.errors import CreditInputError
from creditrl.trainers.credit import token_table, turn_table
from creditrl.trainers.credit.gae import (
    GAEConfig,
    explained_variance,
    gae_of_tables,
    gae_tokens,
    gae_turns,
    value_metrics,
)
from creditrl.trainers.credit.whiten import whiten

lengths = st.lists(st.integers(1, 7), min_size=1, max_size=6)


def plain(**fields) -> GAEConfig:
    return GAEConfig(whiten=False, **fields)


def batch(length_B, seed):
    rng = np.random.default_rng(seed)
    episode_N = np.repeat(np.arange(len(length_B)), length_B)
    return rng.normal(size=len(episode_N)), rng.normal(size=len(episode_N)), episode_N


def test_gae_over_turns_by_hand():
    # gamma = lambda = 1/2, so the sum decays by 1/4. Values 1, 2, 4; reward 8 at the end.
    # delta_2 = 8 + 0 - 4 = 4; delta_1 = 0 + 4/2 - 2 = 0; delta_0 = 0 + 2/2 - 1 = 0.
    # A_2 = 4, A_1 = 0 + 4/4 = 1, A_0 = 0 + 1/4. Targets add the value: 8, 3, 1.25.
    advantage_N, target_N = gae_turns([0, 0, 8], [1, 2, 4], [0, 0, 0], plain(gamma=0.5, lam=0.5))
    np.testing.assert_allclose(advantage_N, [0.25, 1, 4])
    np.testing.assert_allclose(target_N, [1.25, 3, 8])


@pytest.mark.parametrize(
    ("settings", "value_M", "turn_M", "reward_N", "expected"),
    [
        # Two turns of 2 and 1 tokens; observation tokens in between are no rows. Reward 1 for
        # turn 0 sits on token 1, reward 2 for turn 1 on token 2. Values 1, 3, 4, lambda 1/2:
        # delta = [0 + 3 - 1, 1 + 4 - 3, 2 + 0 - 4] = [2, 2, -2], A = [2 + 1/2, 2 - 1, -2].
        ({"lam": 0.5}, [1, 3, 4], [0, 0, 1], [1, 2], [2.5, 1, -2]),
        # gamma and lambda 1/2, both between turns only: delta = [0 + 3 - 1, 1 + 4/2 - 3, 2 - 4] =
        # [2, 0, -2]; A_2 = -2, A_1 = 0 - 2/4 = -0.5, A_0 = 2 - 0.5 = 1.5.
        (
            {"gamma": 0.5, "lam": 0.5, "decay": "turn"},
            *([1, 3, 4], [0, 0, 1], [1, 2], [1.5, -0.5, -2]),
        ),
        # Turns of 2, 1 and 2 tokens, reward 1 on the last token; lambda 1/2 at both borders.
        (
            {"lam": 0.5, "decay": "turn"},
            *([0] * 5, [0, 0, 1, 2, 2], [0, 0, 1], [0.25, 0.25, 0.5, 1, 1]),
        ),
    ],
)
def test_gae_over_tokens_by_hand(settings, value_M, turn_M, reward_N, expected):
    episode_N = np.zeros(len(reward_N), int)
    found = gae_tokens(value_M, turn_M, episode_N, plain(**settings), reward_N=reward_N)
    np.testing.assert_allclose(found, [expected, np.add(expected, value_M)])


def test_token_rewards_add_to_turn_rewards():
    args = ([1.0, 3, 4], [0, 0, 1], [0, 0], plain(gamma=0.9))
    both, _ = gae_tokens(*args, reward_N=[1, 2], reward_M=[0.5, 0, 0])
    alone, _ = gae_tokens(*args, reward_M=[0.5, 1, 2])
    np.testing.assert_allclose(both, alone, rtol=1e-6)


@given(lengths, st.floats(0, 1), st.floats(0, 1), st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_gae_equals_the_sum_of_its_definition_within_every_episode(length_B, gamma, lam, seed):
    reward_N, value_N, episode_N = batch(length_B, seed)
    last_N = np.append(episode_N[1:] != episode_N[:-1], True)
    delta_N = reward_N + gamma * np.where(last_N, 0, np.append(value_N[1:], 0)) - value_N
    t = np.arange(len(episode_N))
    decay_NN = np.triu((gamma * lam) ** np.maximum(t - t[:, None], 0))
    expected = (decay_NN * (episode_N == episode_N[:, None])) @ delta_N
    cfg = plain(gamma=gamma, lam=lam)
    found = gae_turns(reward_N, value_N, episode_N, cfg)
    np.testing.assert_allclose(found, [expected, expected + value_N], atol=1e-5)
    # With a token per turn both forms are equal, whatever decays.
    for decay in ("token", "turn"):
        cfg = plain(gamma=gamma, lam=lam, decay=decay)
        tokens = gae_tokens(value_N, t, episode_N, cfg, reward_N=reward_N)
        np.testing.assert_allclose(tokens, found, atol=1e-5)


def test_targets_are_taken_before_whitening():
    reward_N, value_N, episode_N = batch([3, 2, 4], 0)
    raw, target_N = gae_turns(reward_N, value_N, episode_N, plain())
    white, same_target_N = gae_turns(reward_N, value_N, episode_N, GAEConfig())
    np.testing.assert_array_equal(target_N, same_target_N)
    np.testing.assert_allclose(white, whiten(raw), atol=1e-5)
    np.testing.assert_allclose(target_N, raw + value_N, atol=1e-6)


def test_turns_and_episodes_without_tokens_by_hand():
    # Turns 0-2 are episode 0, turn 3 is episode 1, turn 4 is episode 2. Turn 1 has no tokens: its
    # reward 5 goes to turn 0's token. Episode 1 has none at all. Turn 4 has one token.
    # gamma = lambda = 1, values 0: A = reward to go: 1 + 5 + 2 = 8, 2; 7.
    advantage_M, target_M = gae_tokens(
        [0, 0, 0], [0, 2, 4], [0, 0, 0, 1, 2], plain(lam=1), reward_N=[1, 5, 2, 100, 7]
    )
    np.testing.assert_allclose(advantage_M, [8, 2, 7])
    np.testing.assert_allclose(target_M, [8, 2, 7])
    for nothing in gae_tokens([], [], [0, 1], GAEConfig(), reward_N=[1, 2]):
        assert nothing.shape == (0,)


def test_the_turn_limit_ends_the_episode_unless_bootstrapped():
    # One turn each, value 3, no reward. Episode 0 was cut at the limit, episode 1 was not.
    args = ([0, 0], [3, 3], [0, 1])
    ended, _ = gae_turns(*args, plain())
    np.testing.assert_allclose(ended, [-3, -3])  # r + 0 - V
    carried, target = gae_turns(
        *args,
        plain(gamma=0.5, at_limit="bootstrap"),
        truncated_N=[True, False],
        bootstrap_value_B=[8, np.nan],
    )
    np.testing.assert_allclose(carried, [1, -3])  # 0 + 8/2 - 3; the value after an end is not read
    np.testing.assert_allclose(target, [4, 0])


def test_bootstrapping_over_tokens_follows_the_last_token():
    advantage_M, _ = gae_tokens(
        [0, 0],
        [0, 0],
        [0, 0],  # the episode's second turn has no tokens
        plain(gamma=0.5, lam=1, at_limit="bootstrap"),
        reward_N=[0, 0],
        truncated_N=[True, True],
        bootstrap_value_B=[8],
    )
    np.testing.assert_allclose(advantage_M, [2, 4])


def test_bootstrap_needs_its_columns():
    cfg = plain(at_limit="bootstrap")
    both = {"truncated_N": [True, True, False], "bootstrap_value_B": [1.0, 2.0]}
    args = ([0, 0, 0], [0, 0, 0], [0, 0, 1], cfg)
    assert gae_turns(*args, **both)[1].tolist() == pytest.approx([0.95, 1, 0])
    for missing in both:
        with pytest.raises(CreditInputError, match="needs truncated_N and bootstrap_value_B"):
            gae_turns(*args, **{**both, missing: None})
    with pytest.raises(CreditInputError, match=r"truncated_N has shape \(2,\).*expected \(3,\)"):
        gae_turns(*args, **{**both, "truncated_N": [True, True]})
    with pytest.raises(CreditInputError, match=r"bootstrap_value_B \(1,\): .*at least 2 episodes"):
        gae_turns(*args, **{**both, "bootstrap_value_B": [1.0]})
    assert gae_turns([], [], [], cfg)[0].shape == (0,)  # no turns need none
    with pytest.raises(CreditInputError, match="episode b is|in episode b"):
        gae_turns(
            [0, 0],
            [0, 0],
            [0, 1],
            plain(at_limit="bootstrap"),
            truncated_N=[True, True],
            bootstrap_value_B=[0, np.nan],
            episode_ids=("a", "b"),
        )


def test_gae_of_tables_by_hand():
    turns = turn_table([1, 2], ["only", "only"])
    tokens = token_table([0, 0, 1], value=[1, 3, 4])
    advantage_M, _ = gae_of_tables(turns, tokens, plain(lam=0.5))
    np.testing.assert_allclose(advantage_M, [2.5, 1, -2])  # test_gae_over_tokens_by_hand
    swapped_M, _ = gae_of_tables(turns, tokens, plain(lam=0.5), reward_N=np.array([0.0, 0.0]))
    np.testing.assert_allclose(swapped_M, [1.5, -1, -4])  # delta = 2, 1, -4
    cut = dataclasses.replace(turns, truncated_N=np.ones(2, bool))
    after_M, _ = gae_of_tables(
        cut, tokens, plain(lam=0.0, at_limit="bootstrap"), bootstrap_value_B=[9.0]
    )
    np.testing.assert_allclose(after_M, [2, 2, 7])  # 2 + 9 - 4 on the last token


def test_explained_variance_by_hand():
    # Variance of 0, 2 is 1; of 0 - 0, 2 - 1 it is 1/4. A constant error costs nothing.
    assert explained_variance([0, 1], [0, 2]) == 0.75
    assert explained_variance([5, 7], [0, 2]) == 1.0
    assert explained_variance([0, 0], [0, 2]) == 0.0
    assert explained_variance([2, 0], [0, 2]) == -3.0
    assert explained_variance([1, 2], [3, 3]) == 0.0 == explained_variance([], [])


# Two episodes of one turn with returns 0 and 2; values that explain 3/4 of their variance.
TWO = turn_table([0, 2], ["lost", "won"])
KNOWING = token_table([0, 1], value=[0, 1])


@pytest.mark.parametrize(
    ("least", "advantage"), [(None, [0, 1]), (0.7, [0, 1]), (0.75, [0, 1]), (0.8, [0, 2])]
)
def test_a_critic_that_explains_too_little_does_not_count(least, advantage):
    found_M, target_M = gae_of_tables(TWO, KNOWING, plain(min_explained=least))
    np.testing.assert_allclose(found_M, advantage)
    np.testing.assert_allclose(target_M, [0, 2])  # it learns all the same
    whitened_M, _ = gae_of_tables(TWO, KNOWING, GAEConfig(min_explained=least))
    np.testing.assert_allclose(whitened_M, whiten(advantage))
    counts = {} if least is None else {"critic_counts": float(advantage == [0, 1])}
    found = value_metrics(TWO, KNOWING, plain(min_explained=least))
    assert found == {"explained_variance": 0.75} | counts


def test_explained_variance_is_measured_on_the_plain_return():
    # Neither the limit's bootstrap, which has no values here, nor lambda matters; rewards do.
    cfg = plain(lam=0.3, at_limit="bootstrap")
    assert value_metrics(TWO, KNOWING, cfg) == {"explained_variance": 0.75}
    paid = value_metrics(TWO, KNOWING, cfg, reward_N=[0, 0], reward_M=[0, 1])
    assert paid == {"explained_variance": 1.0}


@pytest.mark.parametrize("decay", ["token", "turn"])
def test_without_a_critic_the_advantage_is_the_discounted_return(decay):
    turns = turn_table([1, 2], ["only", "only"])
    tokens = token_table([0, 0, 1], value=[1, -3, 4])
    cfg = plain(gamma=0.5, lam=0.5, decay=decay, min_explained=1.0)
    found_M, _ = gae_of_tables(turns, tokens, cfg)
    expected = [1.0, 2.0, 2.0] if decay == "token" else [2.0, 2.0, 2.0]
    np.testing.assert_allclose(found_M, expected)
    # The turns' rewards may be others, and tokens may have rewards of their own.
    found_M, _ = gae_of_tables(turns, tokens, cfg, reward_N=[0, 4], reward_M=[0, 0, 4])
    np.testing.assert_allclose(found_M, [2, 4, 8] if decay == "token" else [4, 4, 8])
