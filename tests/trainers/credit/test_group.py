from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from creditrl.errors import ConfigError, CreditInputError
from creditrl.trainers.credit import turn_table
from creditrl.trainers.credit.group import (
    GroupConfig,
    GroupKind,
    group_advantage,
    group_advantage_of_rows,
    group_advantage_of_turns,
    whole_groups,
)
from creditrl.trainers.credit.whiten import whiten
from creditrl.trainers.methods.base import method_info
from creditrl.trainers.methods.dapo import DAPO
from creditrl.trainers.methods.dr_grpo import DrGRPO
from creditrl.trainers.methods.gigpo import GiGPO
from creditrl.trainers.methods.grpo import GRPO, GRPOConfig
from creditrl.trainers.methods.gspo import GSPO
from creditrl.trainers.methods.istar import IStar
from creditrl.trainers.methods.reinforce_pp import ReinforcePP
from creditrl.trainers.methods.rloo import RLOO
from creditrl.types import TokenTable, TurnTable

KINDS = get_args(GroupKind)
CENTRED = ("grpo", "dr_grpo", "rloo", "maxrl")
groups = st.lists(
    st.lists(st.integers(-8, 8).map(lambda x: x / 4), min_size=2, max_size=6),
    min_size=1,
    max_size=5,
)


def advantage(return_B, group_B=None, kind="grpo", **more):
    fields = {k: more.pop(k) for k in ("singleton", "over", "epsilon") if k in more}
    group_B = np.zeros(len(return_B), int) if group_B is None else group_B
    return group_advantage(return_B, group_B, GroupConfig(kind=kind, **fields), **more)


def flat(returns):
    return np.concatenate(returns), np.repeat(np.arange(len(returns)), [len(r) for r in returns])


def make_turns(return_B, group_B, length_B, **scores) -> TurnTable:
    """Episodes that are paid at their first turn."""
    episode_N = np.repeat(np.arange(len(return_B)), length_B)
    first_N = np.append(True, episode_N[1:] != episode_N[:-1])
    return turn_table(
        np.where(first_N, np.asarray(return_B)[episode_N], 0.0),
        np.array([f"ep{b}" for b in range(len(return_B))])[episode_N],
        group=np.asarray(group_B)[episode_N],
        scores=scores,
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # Returns 0, 0, 3: mean 1, deviations -1, -1, 2, unbiased variance (1 + 1 + 4) / 2 = 3.
        ("grpo", np.array([-1, -1, 2]) / (np.sqrt(3) + 1e-6)),
        ("dr_grpo", [-1, -1, 2]),
        ("rloo", [-1.5, -1.5, 3]),  # 0 - (0 + 3)/2 and 3 - 0
        ("maxrl", np.array([-1, -1, 2]) / (1 + 1e-6)),  # by the mean
        ("passk", [0, 0, 3]),  # 3 less the second best, 0
        ("grpo_passk", np.array([0, 0, 3]) / (np.sqrt(3) + 1e-6)),
        ("reinforce++", np.array([-1, -1, 2]) / np.sqrt(3 + 1e-8)),
        ("reinforce++_baseline", np.array([-1, -1, 2]) / np.sqrt(3 + 1e-8)),
    ],
)
def test_one_group_by_hand(kind, expected):
    np.testing.assert_allclose(advantage([0, 0, 3], kind=kind), expected, rtol=1e-6)


def test_epsilon_is_added_to_the_deviation():
    # Deviations of 1e-6, unbiased std sqrt(2) 1e-6, and epsilon of the same size.
    found = advantage([0, 2e-6], kind="grpo")
    np.testing.assert_allclose(found, np.array([-1, 1]) / (np.sqrt(2) + 1), rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # Groups (0, 2) and (10, 14). GRPO: deviations over std sqrt(2) and sqrt(8).
        ("grpo", np.array([-1, -2, 1, 2]) / (np.sqrt([2, 8, 2, 8]) + 1e-6)),
        # Means 1 and 12. The best lead by 2 and 4.
        ("maxrl", np.array([-1, -2, 1, 2]) / (np.array([1, 12, 1, 12]) + 1e-6)),
        ("passk", [0, 0, 2, 4]),
        ("grpo_passk", np.array([0, 0, 2, 4]) / np.sqrt([2, 8, 2, 8])),
        # REINFORCE++ compares with the whole batch: mean 6.5, variance (42.25 + 12.25 + 20.25 +
        # 56.25) / 3 = 131 / 3.
        ("reinforce++", np.array([-6.5, 3.5, -4.5, 7.5]) / np.sqrt(131 / 3)),
        # Its baseline form: deviations -1, -2, 1, 2, variance 10 / 3.
        ("reinforce++_baseline", np.array([-1, -2, 1, 2]) / np.sqrt(10 / 3)),
    ],
)
def test_two_groups_by_hand(kind, expected):
    found = advantage([0, 10, 2, 14], [7, 9, 7, 9], kind)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@given(
    groups,
    st.sampled_from(KINDS),
    st.tuples(st.floats(0.125, 64), st.floats(-8, 8), st.integers(0, 2**32 - 1)),
)
@settings(max_examples=60)
def test_advantages_sum_to_zero_within_groups_and_ignore_order_shift_and_scale(
    returns, kind, changes
):
    scale, shift, seed = changes
    return_B, group_B = flat(returns)
    if kind == "maxrl":
        return_B = return_B + 2.0  # at least 0; it is relative to the outcome's own zero
        shift = 0.0
    straight = advantage(return_B, group_B, kind)
    if kind in CENTRED:
        np.testing.assert_allclose(np.bincount(group_B, weights=straight), 0, atol=1e-5)
    # The order of members and the numbers of groups.
    order = np.random.default_rng(seed).permutation(len(return_B))
    mixed = advantage(return_B[order], 1000 - 3 * group_B[order], kind)
    np.testing.assert_allclose(mixed, straight[order], atol=1e-5)
    # A shift, and, where deviations are divided by, the scale.
    factor = scale if kind in ("dr_grpo", "rloo", "passk") else 1
    other = advantage(return_B * scale + shift, group_B, kind)
    np.testing.assert_allclose(other, factor * straight, rtol=1e-3, atol=1e-3 * factor)


@given(value=st.floats(-1e6, 1e6), size=st.integers(2, 9))
@settings(max_examples=25)
def test_equal_returns_give_exactly_zero(value, size):
    for kind in KINDS:
        equal = [abs(value) if kind == "maxrl" else value] * size
        assert (advantage(equal, kind=kind) == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_returns_equal_up_to_rounding_give_exactly_zero(kind):
    # The same 50 float32 rewards added in two orders. Their spread is about 1e-6, which GRPO's
    # formula would divide by 1e-6 + 1e-6 and hand out as credit.
    reward = np.random.default_rng(0).normal(size=50).astype(np.float32) + 1
    returns = [np.cumsum(r, dtype=np.float32)[-1] for r in (reward, reward[::-1], np.sort(reward))]
    assert np.ptp(returns) > 0
    assert (advantage(returns, kind=kind) == 0).all()


def test_maxrl_weighs_a_rare_success_more():
    # One success of four: 3 and -1; two: 1 and -1; none: 0. (1 - mean) / mean is what REINFORCE's
    # gradient of log p asks for. SkyRL a9564572 has the same for these groups.
    found = advantage([1, 0, 0, 0, 1, 1, 0, 0, 0, 0], [0] * 4 + [1] * 4 + [2] * 2, "maxrl")
    np.testing.assert_allclose(found, [3, -1, -1, -1, 1, 1, -1, -1, 0, 0], rtol=1e-5)
    found = advantage([1, 0, 0, 1, 0.5, 2, 0, 0], [0] * 4 + [1] * 2 + [2] * 2, "maxrl")
    skyrl = [*(0.99999797, -0.99999797, -0.99999797, 0.99999797), -0.59999955, 0.59999955, 0, 0]
    np.testing.assert_allclose(found, skyrl, rtol=1e-6)
    # The epsilon is added to the mean; turns are compared with the mean of first turns.
    np.testing.assert_allclose(advantage([0, 2], kind="maxrl", epsilon=1.0), [-0.5, 0.5])
    rows = group_advantage_of_rows([0, 1, 0], [0, 0, 1], [0, 0, 0], GroupConfig(kind="maxrl"))
    assert rows.tolist() == [0, 1, 0]


def test_maxrl_refuses_outcomes_below_zero():
    with pytest.raises(CreditInputError, match="an outcome is -0.5: expected at least 0"):
        advantage([1, -0.5], kind="maxrl")


def test_pass_at_k_pays_what_the_group_would_lose_without_a_member():
    # Only a single best member has a lead.
    assert advantage([0, 1, 0.25, 1], kind="passk").tolist() == [0, 0, 0, 0]
    assert advantage([0, 1, 0.25, 0.5], kind="passk").tolist() == [0, 0.5, 0, 0]
    # A lead of up to a millionth is rounding.
    assert advantage([1e6, 999_999], kind="passk").tolist() == [0, 0]
    assert advantage([1e6, 999_998], kind="passk").tolist() == [2, 0]
    return_B = np.random.default_rng(0).normal(size=7)
    lost = [return_B.max() - np.delete(return_B, b).max() for b in range(7)]
    np.testing.assert_allclose(advantage(return_B, kind="passk"), lost, rtol=1e-6)
    # Turns with values of their own, against other episodes' first turns.
    cfg = GroupConfig(kind="passk")
    rows = group_advantage_of_rows([3, 2.5, 1, 0.5], [0, 0, 1, 1], [0] * 4, cfg)
    assert rows.tolist() == [2, 1.5, 0, 0]


@pytest.mark.parametrize("kind", ["passk", "grpo_passk"])
def test_pass_at_k_over_rows_is_refused(kind):
    with pytest.raises(ConfigError, match=f'"{kind}" .* its own rival'):
        GroupConfig(kind=kind, over="rows")
    with pytest.raises(ConfigError, match="singleton is 'none'"):
        GroupConfig(kind=kind, singleton="none")


@pytest.mark.parametrize("kind", (*CENTRED, "passk", "grpo_passk"))
def test_a_group_of_one_keeps_its_return_or_gets_zero(kind):
    assert advantage([3, 1, 5], [0, 1, 1], kind, singleton="raw")[0] == 3
    assert advantage([3, 1, 5], [0, 1, 1], kind, singleton="zero")[0] == 0


@pytest.mark.parametrize(("singleton", "raw"), [("raw", [3, -2, 2]), ("zero", [0, -2, 2])])
def test_a_group_of_one_under_the_whitened_baseline(singleton, raw):
    found = advantage([3, 1, 5], [0, 1, 1], "reinforce++_baseline", singleton=singleton)
    np.testing.assert_allclose(found, whiten(raw), rtol=1e-6)


def test_rows_count_a_trajectory_once_per_turn():
    # Returns 0 (3 turns) and 4 (1 turn). Trajectories: mean 2. Rows 0, 0, 0, 4: mean 1, unbiased
    # variance (1 + 1 + 1 + 9) / 3 = 4, and 4/3 (r - 1) for RLOO.
    turns = make_turns([0, 4], [0, 0], [3, 1])
    per_kind = {
        "dr_grpo": ([-2, -2, -2, 2], [-1, -1, -1, 3]),
        "grpo": (np.array([-2, -2, -2, 2]) / np.sqrt(8), [-0.5, -0.5, -0.5, 1.5]),
        "rloo": ([-4, -4, -4, 4], [-4 / 3, -4 / 3, -4 / 3, 4]),
    }
    for kind, (by_trajectory, by_row) in per_kind.items():
        for over, expected in (("trajectories", by_trajectory), ("rows", by_row)):
            np.testing.assert_allclose(
                group_advantage_of_turns(turns, GroupConfig(kind=kind, over=over)),
                expected,
                rtol=1e-5,
            )


@pytest.mark.parametrize(
    ("kind", "over", "expected"),
    [
        # Values 1, 0.9, 1 of one episode and 0 of another. By first turns (1 and 0): mean 1/2,
        # unbiased std sqrt(1/2), n = 2. By rows: mean 0.725, n = 4.
        ("dr_grpo", "trajectories", [0.5, 0.4, 0.5, -0.5]),
        ("grpo", "trajectories", np.array([0.5, 0.4, 0.5, -0.5]) * np.sqrt(2)),
        ("rloo", "trajectories", [1, 0.8, 1, -1]),
        ("dr_grpo", "rows", [0.275, 0.175, 0.275, -0.725]),
        # Squares of these: 0.0756 + 0.0306 + 0.0756 + 0.5256 = 0.7075, over 3: std 0.485627.
        ("grpo", "rows", np.array([0.275, 0.175, 0.275, -0.725]) / 0.485627),
        ("rloo", "rows", np.array([0.275, 0.175, 0.275, -0.725]) * 4 / 3),
    ],
)
def test_a_penalty_before_the_comparison_moves_means_too(kind, over, expected):
    turns = make_turns([1, 0], [0, 0], [3, 1])
    found = group_advantage_of_turns(
        turns, GroupConfig(kind=kind, over=over), penalty_N=[0, -0.1, 0, 0]
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_row_is_not_divided_by_zero_if_first_turns_are_equal():
    # Both first turns 1: no deviation to divide the third value by.
    found = group_advantage_of_rows([1, 0.9, 1], [0, 0, 1], [0, 0, 0], GroupConfig(kind="grpo"))
    np.testing.assert_allclose(found, [0, -0.1, 0], atol=1e-6)
    for kind in ("reinforce++", "reinforce++_baseline"):
        flat = group_advantage_of_rows([1, 0.9, 1], [0, 0, 1], [0, 0, 0], GroupConfig(kind=kind))
        np.testing.assert_allclose(flat, [0, -0.1, 0], atol=1e-6)
    # A group of one has mean 0 and deviation 1 (or no credit), whatever its other turns are.
    for kind in CENTRED:
        raw = GroupConfig(kind=kind, singleton="raw")
        alone = group_advantage_of_rows([3, 2], [0, 0], [0, 0], raw)
        assert alone.tolist() == [3, 2]
        none = GroupConfig(kind=kind, singleton="zero")
        assert group_advantage_of_rows([3, 2], [0, 0], [0, 0], none).tolist() == [0, 0]


@pytest.mark.parametrize("kind", ["reinforce++", "reinforce++_baseline"])
def test_whitening_over_tokens_counts_a_turn_once_per_token(kind):
    # Outcomes 0 on turns of 1 and 3 tokens, 4 on one of 2: over tokens 0, 0, 0, 0, 4, 4 the mean is
    # 4/3, the unbiased variance (4 * 16/9 + 2 * 64/9) / 5 = 64/15. A group's mean shifts all alike.
    turns = make_turns([0, 4], [0, 0], [2, 1])
    tokens = TokenTable(np.array([0, 1, 1, 1, 2, 2]), np.zeros(6))
    cfg = GroupConfig(kind=kind, whiten_over="tokens")
    found = group_advantage_of_turns(turns, cfg, tokens=tokens)
    np.testing.assert_allclose(found, np.array([-4, -4, 8]) / 3 / np.sqrt(64 / 15), rtol=1e-6)
    # Over turns 0, 0, 4: variance 16/3. Over episodes: variance 8.
    for over, std, mean in (("rows", np.sqrt(16 / 3), 4 / 3), ("trajectories", np.sqrt(8), 2)):
        found = group_advantage_of_turns(turns, GroupConfig(kind=kind, whiten_over=over))
        np.testing.assert_allclose(found, (np.array([0, 0, 4]) - mean) / std, rtol=1e-6)
    # No tokens at all: nothing to whiten over.
    assert not group_advantage_of_turns(turns, cfg, tokens=TokenTable(np.zeros(0, int), [])).any()


def test_centring_and_whitening_can_be_over_different_units():
    # Groups (0 twice, 3) and (1, 1): means by rows 1, by trajectories 3/2; and 1. Over rows first:
    # -1, -1, 2, 0, 0; tokens 1, 1, 2, 1, 1: mean 2/6, squares 2 * 16/9 + 2 * 25/9 + 2 * 1/9 = 28/3.
    turns = make_turns([0, 3, 1, 1], [0, 0, 1, 1], [2, 1, 1, 1])
    tokens = TokenTable(np.array([0, 1, 2, 2, 3, 4]), np.zeros(6))
    cfg = GroupConfig(kind="reinforce++_baseline", over="rows", whiten_over="tokens")
    expected = (np.array([-1, -1, 2, 0, 0]) - 1 / 3) / np.sqrt(28 / 15)
    np.testing.assert_allclose(
        group_advantage_of_turns(turns, cfg, tokens=tokens), expected, rtol=1e-6
    )
    # Over trajectories: -1.5, -1.5, 1.5, 0, 0; the token mean is 0, squares 4 * 2.25 = 9.
    cfg = GroupConfig(kind="reinforce++_baseline", whiten_over="tokens")
    expected = np.array([-1.5, -1.5, 1.5, 0, 0]) / np.sqrt(9 / 5)
    np.testing.assert_allclose(
        group_advantage_of_turns(turns, cfg, tokens=tokens), expected, rtol=1e-6
    )


def test_rows_equal_a_table_of_repeated_members():
    return_B, length_B = np.array([0.0, 1, 3, 3]), np.array([2, 5, 1, 3])
    for kind in KINDS:
        weighted = advantage(return_B, kind=kind, weight_B=length_B)
        repeated = advantage(np.repeat(return_B, length_B), kind=kind)
        np.testing.assert_allclose(np.repeat(weighted, length_B), repeated, atol=1e-6)
        assert advantage([], kind=kind).shape == (0,)


def test_the_outcome_column_can_be_a_score_or_success():
    turns = make_turns([0, 0], [0, 0], [2, 1], score_N=np.array([1.0, 1.0, 0.0]))
    turns.success_N[:2] = True
    for outcome in ("score_N", "success_N"):
        cfg = GroupConfig(kind="dr_grpo", outcome=outcome)
        assert group_advantage_of_turns(turns, cfg).tolist() == [0.5, 0.5, -0.5]


def test_failed_episodes_count_nowhere_and_get_no_credit():
    with_failure = advantage([0, np.nan, 3, 0], kind="rloo", valid_B=[True, False, True, True])
    np.testing.assert_allclose(with_failure, [-1.5, 0, 3, -1.5])
    group_B = np.array([0, 0, 1, 1])
    assert whole_groups([True, False, True, True], group_B).tolist() == [False, False, True, True]


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, "grpo"),
        ({"divide_by_std": False}, "dr_grpo"),
        ({"baseline": "maxrl"}, "maxrl"),
        ({"baseline": "maxrl", "divide_by_std": False, "over": "rows"}, "maxrl"),
        ({"baseline": "passk"}, "grpo_passk"),
        ({"baseline": "passk", "divide_by_std": False}, "passk"),
    ],
)
def test_grpos_settings_name_the_comparison(fields, kind):
    config = GRPOConfig(**fields)
    assert config.group() == GroupConfig(kind=kind, singleton="zero", over=config.over)
    turns = make_turns([0, 1, 3, 5], [0, 0, 0, 1], [2, 1, 1, 2])
    credit = GRPO(config).credit(turns, TokenTable(np.zeros(0, int), np.zeros(0)))
    assert credit.advantage_N.tolist() == group_advantage_of_turns(turns, config.group()).tolist()
    assert not credit.advantage_N[-2:].any()
    with pytest.raises(ConfigError, match="its own rival"):
        GRPOConfig(baseline="passk", over="rows")
    with pytest.raises(ConfigError, match="Did you mean 'passk'"):
        GRPOConfig(baseline="pass@k")


@pytest.mark.parametrize("config", [DAPO, DrGRPO, GiGPO, GRPO, GSPO, IStar, RLOO, ReinforcePP])
def test_methods_give_a_group_of_one_no_credit(config):
    fields = {"baseline": True} if config is ReinforcePP else {}
    method = config(method_info(config.name).config(**fields))
    turns = make_turns([0, 4, 5], [0, 0, 1], [1, 1, 1])
    turns = replace(turns, state_N=np.arange(3), grounded_N=np.ones(3, bool))
    turns = turns.with_scores(implicit_N=np.zeros(3, dtype=np.float32))
    credit = method.credit(turns, TokenTable(np.arange(3), np.zeros(3)))
    assert credit.advantage_N[2] == 0 and credit.advantage_N[1] > 0


@pytest.mark.parametrize("p", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("members", [2, 4])
def test_the_expected_gradient_is_right_where_the_policy_decides_when_to_stop(p, members):
    """The smallest such task, where normalising per turn index would lose it all (verl issue 7244).

    With probability p a member takes a second turn, which pays 1, else it stops with 0: J = p, so
    dJ/dlogit = p (1 - p). Its first turn's score is 1 - p for going on and -p for stopping; the
    second turn has nothing to choose.
    """
    found = {"rloo": 0.0, "dr_grpo": 0.0}
    for goes_on in product([0, 1], repeat=members):
        chance = np.prod([p if g else 1 - p for g in goes_on])
        score_B = np.array([1 - p if g else -p for g in goes_on])
        for kind in found:
            found[kind] += chance * float(np.mean(advantage(goes_on, kind=kind) * score_B))
    assert found["rloo"] == pytest.approx(p * (1 - p), rel=1e-5)
    # A mean that includes the member itself only shrinks the gradient, by (n - 1) / n.
    assert found["dr_grpo"] == pytest.approx(p * (1 - p) * (members - 1) / members, rel=1e-5)
