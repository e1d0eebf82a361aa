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
from creditrl.trainers.credit.returns import discounted_return
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


def test_gae_over_tokens_by_hand():
    # Two turns of 2 and 1 tokens; what the environment said in between is no row. gamma 1, lambda
    # 1/2. Reward 1 for turn 0 sits on token 1, reward 2 for turn 1 on token 2. Values 1, 3, 4.
    # delta = [0 + 3 - 1, 1 + 4 - 3, 2 + 0 - 4] = [2, 2, -2]
    # A_2 = -2, A_1 = 2 - 1 = 1, A_0 = 2 + 0.5 = 2.5; targets 3.5, 4, 2.
    advantage_M, target_M = gae_tokens(
        [1, 3, 4], [0, 0, 1], [0, 0], plain(gamma=1, lam=0.5), reward_N=[1, 2]
    )
    np.testing.assert_allclose(advantage_M, [2.5, 1, -2])
    np.testing.assert_allclose(target_M, [3.5, 4, 2])


def test_decay_per_turn_leaves_the_inside_of_a_reply_undiscounted():
    # As above with gamma 1/2, lambda 1/2, both between turns only: delta = [0 + 3 - 1,
    # 1 + 4/2 - 3, 2 - 4] = [2, 0, -2]; A_2 = -2, A_1 = 0 - 2/4 = -0.5, A_0 = 2 - 0.5 = 1.5.
    advantage_M, _ = gae_tokens(
        [1, 3, 4], [0, 0, 1], [0, 0], plain(gamma=0.5, lam=0.5, decay="turn"), reward_N=[1, 2]
    )
    np.testing.assert_allclose(advantage_M, [1.5, -0.5, -2])


def test_decay_per_turn_knows_every_border():
    # Turns of 2, 1 and 2 tokens, values 0, reward 1 on the last token; lambda 1/2 at both borders.
    advantage_M, _ = gae_tokens(
        [0] * 5, [0, 0, 1, 2, 2], [0, 0, 0], plain(lam=0.5, decay="turn"), reward_N=[0, 0, 1]
    )
    np.testing.assert_allclose(advantage_M, [0.25, 0.25, 0.5, 1, 1])


def test_token_rewards_add_to_turn_rewards():
    args = ([1.0, 3, 4], [0, 0, 1], [0, 0], plain(gamma=0.9))
    both, _ = gae_tokens(*args, reward_N=[1, 2], reward_M=[0.5, 0, 0])
    alone, _ = gae_tokens(*args, reward_M=[0.5, 1, 2])
    np.testing.assert_allclose(both, alone, rtol=1e-6)


@given(lengths, st.integers(0, 2**32 - 1))
@settings(max_examples=50)
def test_lambda_one_gamma_one_is_return_minus_value(length_B, seed):
    reward_N, value_N, episode_N = batch(length_B, seed)
    advantage_N, target_N = gae_turns(reward_N, value_N, episode_N, plain(gamma=1, lam=1))
    return_N = discounted_return(reward_N, episode_N, 1.0)
    np.testing.assert_allclose(advantage_N, return_N - value_N, atol=1e-5)
    np.testing.assert_allclose(target_N, return_N, atol=1e-5)


@given(lengths, st.floats(0, 1), st.integers(0, 2**32 - 1))
@settings(max_examples=50)
def test_lambda_zero_is_the_one_step_residual(length_B, gamma, seed):
    reward_N, value_N, episode_N = batch(length_B, seed)
    advantage_N, _ = gae_turns(reward_N, value_N, episode_N, plain(gamma=gamma, lam=0))
    last_N = np.append(episode_N[1:] != episode_N[:-1], True)
    next_N = np.where(last_N, 0, np.append(value_N[1:], 0))
    np.testing.assert_allclose(advantage_N, reward_N + gamma * next_N - value_N, atol=1e-5)


@given(lengths, st.floats(0, 1), st.floats(0, 1), st.integers(0, 2**32 - 1))
@settings(max_examples=50)
def test_one_token_per_turn_makes_both_forms_equal(length_B, gamma, lam, seed):
    reward_N, value_N, episode_N = batch(length_B, seed)
    for decay in ("token", "turn"):
        cfg = plain(gamma=gamma, lam=lam, decay=decay)
        tokens = gae_tokens(value_N, np.arange(len(episode_N)), episode_N, cfg, reward_N=reward_N)
        np.testing.assert_allclose(tokens, gae_turns(reward_N, value_N, episode_N, cfg), atol=1e-5)


def test_terminal_surprise_decays_by_gamma_lambda_per_turn():
    # A value that has converged to the discounted chance of success leaves no residual before the
    # end, so k turns earlier the advantage is (gamma lambda)^k times the last one.
    gamma, lam, turns, chance = 0.99, 0.95, 30, 0.4
    k = np.arange(turns)[::-1]
    value_N = chance * gamma**k
    reward_N = np.eye(turns)[-1]
    advantage_N, _ = gae_turns(reward_N, value_N, np.zeros(turns, int), plain(gamma=gamma, lam=lam))
    np.testing.assert_allclose(advantage_N, (1 - chance) * (gamma * lam) ** k, rtol=1e-4)


@given(lengths, st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_each_episode_is_as_if_it_were_alone(length_B, seed):
    reward_N, value_N, episode_N = batch(length_B, seed)
    together = gae_turns(reward_N, value_N, episode_N, plain(gamma=0.9))
    for b in range(len(length_B)):
        mine = episode_N == b
        alone = gae_turns(reward_N[mine], value_N[mine], episode_N[mine], plain(gamma=0.9))
        np.testing.assert_allclose(np.stack(together)[:, mine], alone, rtol=1e-6)


def test_targets_are_taken_before_whitening():
    reward_N, value_N, episode_N = batch([3, 2, 4], 0)
    raw, target_N = gae_turns(reward_N, value_N, episode_N, plain())
    white, same_target_N = gae_turns(reward_N, value_N, episode_N, GAEConfig())
    np.testing.assert_array_equal(target_N, same_target_N)
    np.testing.assert_allclose(white, whiten(raw), atol=1e-5)
    np.testing.assert_allclose(target_N, raw + value_N, atol=1e-6)


def test_turns_and_episodes_without_tokens():
    # Turns 0-2 are episode 0, turn 3 is episode 1, turn 4 is episode 2. Turn 1 has no tokens: its
    # reward 5 goes to turn 0's token. Episode 1 has none at all. Turn 4 has one token.
    # gamma = lambda = 1, values 0: A = reward to go: 1 + 5 + 2 = 8, 2; 7.
    advantage_M, target_M = gae_tokens(
        [0, 0, 0], [0, 2, 4], [0, 0, 0, 1, 2], plain(lam=1), reward_N=[1, 5, 2, 100, 7]
    )
    np.testing.assert_allclose(advantage_M, [8, 2, 7])
    np.testing.assert_allclose(target_M, [8, 2, 7])


def test_no_tokens_at_all():
    advantage_M, target_M = gae_tokens([], [], [0, 1], GAEConfig(), reward_N=[1, 2])
    assert advantage_M.shape == target_M.shape == (0,)


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


def test_tables_in_credit_out():
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


def test_what_a_critic_explains_is_the_plain_return():
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
