"""Settings and columns that credit cannot be computed from are refused, and named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import creditrl.trainers.credit as c
from creditrl.errors import ConfigError, CreditInputError
from creditrl.trainers.credit import group_advantage_of_rows as of_rows
from creditrl.trainers.credit import group_advantage_of_turns as of_turns
from creditrl.trainers.credit.history_group import same_history
from creditrl.trainers.credit.implicit import outcome_cross_entropy
from creditrl.trainers.credit.returns import discounted_return, episode_sum
from creditrl.trainers.credit.stats import joint_index

PLAIN = c.GAEConfig(whiten=False)
ONE = c.turn_table([1.0], [0])
# Two turns of an episode with a token each, and two episodes of which the second is broken.
ONLY = c.turn_table([1, 2], ["only", "only"])
VALUED = c.token_table([0, 1], value=[1, 3])
NAN_VALUE = replace(VALUED, value_M=np.array([1, np.nan]))
TWO = c.turn_table([0, 4], ["a", "b"], state=[1, 1])
NAN_REWARD = replace(TWO, reward_N=np.array([0, np.nan]), return_N=np.array([0, np.nan]))
GROUP, TOKENS = c.GroupConfig(), c.GroupConfig(kind="reinforce++", whiten_over="tokens")
AB = {"episode_ids": ("a", "b")}
SCORES = "StateScoreConfig.*"


def called(value: Any) -> str:
    """Return the name of the function that a case calls, for the name of the case."""
    return value if isinstance(value, str) else next(n for n in value.__code__.co_names if n != "c")


def short(name: str) -> str:
    return rf"{name} has shape \(1,\): expected \(2,\)"


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        (c.GAEConfig, {"lam": 1.2}, "lam is 1.2"),
        (c.GAEConfig, {"at_limit": "stop"}, "at_limit"),
        (c.GAEConfig, {"min_explained": 1.5}, "min_explained is 1.5"),
        (c.GroupConfig, {"kind": "rlo"}, "Did you mean 'rloo'"),
        (c.GroupConfig, {"whiten_over": "token"}, "whiten_over is 'token'.*Did you mean 'tokens'"),
        (c.GroupConfig, {"over": None}, "GroupConfig.over is None"),
        (c.HistoryGroupConfig, {"history": -1}, "history is -1"),
        (c.HistoryGroupConfig, {"gamma": -0.1}, "gamma is -0.1"),
        (c.HistoryGroupConfig, {"gamma": 1.5}, "gamma is 1.5"),
        (c.RolloutTreeConfig, {"prior": -1}, "prior is -1"),
        (c.RolloutTreeConfig, {"gamma": 1.5}, "gamma is 1.5"),
        (c.StepGroupConfig, {"normalise": "std"}, "mean-std"),
        (c.StepGroupConfig, {"min_group": 1}, "at least 2"),
        (c.StateScoreConfig, {"alpha": -1.0}, SCORES + "alpha"),
        (c.StateScoreConfig, {"xi": 0}, SCORES + "xi"),
        (c.StateScoreConfig, {"zeta": -0.1}, SCORES + "zeta"),
        (c.StateScoreConfig, {"zeta": 1.5}, SCORES + "zeta"),
        (c.StateScoreConfig, {"fixed_weight": 0.6}, SCORES + "fixed_weight"),
        (c.StateScoreConfig, {"fixed_weight": -0.1}, SCORES + "fixed_weight"),
        (c.StateScoreConfig, {"lambda_clock": "x"}, SCORES + "lambda_clock"),
        (c.StateScoreConfig, {"differences": "odds"}, "Known: scores, rates"),
        (
            c.StateScoreConfig,
            {"differences": "rates", "score_difference": False},
            "a turn's reward does not depend on success",
        ),
    ],
)
def test_settings_out_of_range_are_named(kind, changes, said):
    with pytest.raises(ConfigError, match=said):
        kind(**changes)


@pytest.mark.parametrize(
    ("kind", "field", "edges"),
    [
        (c.HistoryGroupConfig, "gamma", [1]),
        (c.HistoryGroupConfig, "history", [0]),
        (c.RolloutTreeConfig, "gamma", [1.0]),
        (c.StateScoreConfig, "alpha", [0]),
        (c.StateScoreConfig, "xi", [1]),
        (c.StateScoreConfig, "zeta", [0, 1]),
        (c.StateScoreConfig, "fixed_weight", [0, 0.5]),
    ],
)
def test_the_ends_of_a_range_are_in_it(kind, field, edges):
    assert [getattr(kind(**{field: edge}), field) for edge in edges] == edges


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: c.similar_states(["a"], np.zeros(1, int), 0.0), "more than 0, at most 1"),
        (lambda: c.similar_states(["a"], np.zeros(1, int), 1.5), "more than 0, at most 1"),
        (lambda: c.kl_reward([0], [0], 1.0, "k4"), "k4"),
        (lambda: c.overlong_penalty([1], 10, 0), "overlong buffer is 0 .* expected 1 to 10"),
        (lambda: c.overlong_penalty([1], 10, 11), "overlong buffer is 11 .* expected 1 to 10"),
        (lambda: c.ungrounded_penalty([True], -0.1), "-0.1"),
    ],
    ids=called,
)
def test_arguments_out_of_range_are_named(call, said):
    with pytest.raises(ConfigError, match=said):
        call()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        # GAE.
        (lambda: c.gae_tokens([0], [0], [0], PLAIN), "reward_N or reward_M"),
        (lambda: c.gae_tokens([0], [-1], [0], PLAIN, reward_N=[0]), "turn_M runs from -1"),
        (lambda: c.gae_tokens([0], [1], [0], PLAIN, reward_N=[0]), "turn_M runs from 1"),
        (lambda: c.gae_tokens([0], [3], [0], PLAIN, reward_N=[0]), "turn_M runs from 3"),
        (lambda: c.gae_of_tables(ONLY, NAN_VALUE, PLAIN), "value_M is nan at row 1, in episode on"),
        (lambda: c.gae_of_tables(ONLY, c.token_table([0, 1]), PLAIN), "run the critic"),
        # Groups.
        (lambda: c.group_advantage([0, np.nan], [0, 0], GROUP, **AB), "in episode b"),
        (lambda: of_turns(NAN_REWARD, GROUP), "episode b"),
        (lambda: of_turns(TWO, c.GroupConfig(outcome="scor_N")), "no column 'scor_N'"),
        (lambda: of_turns(ONLY, GROUP, penalty_N=[0]), short("penalty_N")),
        (lambda: of_turns(TWO, TOKENS), "number of reply tokens"),
        (lambda: of_rows([1, 2], [0, 1], [0], GROUP), "group_N has 1 values: expected 2"),
        (lambda: of_rows([1, 2], [0, 1], [0, 0], TOKENS, tokens_N=[3]), short("tokens_N")),
        (lambda: c.group_advantage([1, 2], [0], GROUP), "one value per episode"),
        (
            lambda: c.group_advantage([1, 2], [0, 0], GROUP, valid_B=[True]),
            r"valid_B \(1,\): expected \(2,\)",
        ),
        (lambda: c.group_advantage([1, 2], [0, 0], GROUP, weight_B=[1]), short("weight_B")),
        (lambda: c.group_advantage([1, 2], [0, 0], GROUP, weight_B=[0, 1]), "weight_B has 0"),
        # States.
        (lambda: c.history_group(ONE, c.HistoryGroupConfig()), "StateHash"),
        (lambda: same_history(np.array([1]), np.array([0]), 0), "length 0: expected at least 1"),
        (lambda: c.rollout_tree(ONE, [0], c.RolloutTreeConfig()), "StateHash"),
        (lambda: c.step_group(ONE, c.StepGroupConfig()), "StateHash"),
        (lambda: c.step_group(NAN_REWARD, c.StepGroupConfig()), "episode b"),
        (
            lambda: c.step_group(TWO, c.StepGroupConfig(), return_N=[1.0]),
            r"return_N has shape \(1,\)",
        ),
        # Rewards and returns.
        (lambda: c.discriminator_reward([0.0], "gale"), "'gale'"),
        (lambda: c.discriminator_reward([np.nan]), "logit_N is nan"),
        (lambda: c.imitation_reward([0.0], None, [0.0, 0.0]), short("implicit_N")),
        (lambda: c.imitation_reward(None, [0.0], [0.0, 0.0]), r"discriminator_N has shape \(1,\)"),
        (lambda: outcome_cross_entropy([0.0, 0.0], [1]), short("success_B")),
        (lambda: c.prime_advantage([0.1], [0.5], [0], [0]), "outcome 0.5: expected 0 or 1"),
        (lambda: c.kl_reward([0, np.nan], [0, 0], 1, episode_M=[0, 1], **AB), "in episode b"),
        (lambda: discounted_return([0, np.nan], [0, 1], 1, **AB), "episode b"),
        (lambda: episode_sum([0, np.nan], [0, 1]), "episode 1"),
        (lambda: discounted_return([1, 1, 1], [0, 1, 0], 1.0), "consecutive"),
        (lambda: discounted_return([1, 1], [0, 0, 0], 1.0), "shape"),
        (lambda: discounted_return([1], [0], 1.5), "gamma is 1.5"),
        (lambda: discounted_return([1.0], [0.5], 1.0), "int array"),
        # Spreading, and what is shared.
        (lambda: c.turns_to_tokens([1, 2], [0, 2]), "has 2 values"),
        (lambda: c.turns_to_tokens([1, 2], [-1, 0]), "has 2 values"),
        (lambda: c.turns_to_tokens([1, 2], [-1]), "has 2 values"),
        (lambda: c.turn_sum([1, 2], [0, 2, 2], 4), r"value_M has shape \(2,\): expected \(3,\)"),
        (
            lambda: c.reward_on_last_token([1, 2], [0, 2], [0, 0]),
            "turn_M runs from 0 to 2, but reward_N has 2",
        ),
        (lambda: c.reward_on_last_token([0, np.nan], [0, 1], [0, 1], **AB), "in episode b"),
        (lambda: joint_index([1, 2], [1, 2, 3]), "2 and 3 rows"),
        (lambda: c.whiten([1, np.nan, 2, 3]), "row 1"),
        (
            lambda: c.vine_advantage(c.turn_table([1], [0], scores={"valued_N": [1]}), 1.5),
            "gamma is 1.5",
        ),
        # ArCHer.
        (lambda: c.q_targets([0.0], [[0.0]], [False], 1.5), "gamma is 1.5"),
        (lambda: c.q_targets([0.0, 1.0], [[0.0]], [False], 0.9), "2 rewards, 1 done flags"),
        (lambda: c.q_targets([0.0], [0.0], [False], 0.9), r"values of shape \(1,\): expected"),
        (
            lambda: c.q_targets([0.0], [[0.5]], [False], 1.0, return_N=[1.0, 2.0], returns=0.5),
            "return_N",
        ),
    ],
    ids=called,
)
def test_mismatched_columns_are_named(call, said):
    with pytest.raises(CreditInputError, match=said):
        call()
