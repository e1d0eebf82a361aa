"""State scores of 3SPO, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from creditrl.errors import ConfigError
from creditrl.trainers.credit.state_scores import (
    StateScoreConfig,
    StateTable,
    episode_rewards,
    novelty_weight,
    rollouts_at,
    state_score,
    turn_reward,
)

PAPER = StateScoreConfig()
RELEASED = StateScoreConfig(alpha=1.0)


def test_the_score_of_a_state_by_hand():
    paper = StateScoreConfig()
    assert state_score(0, 0, 5, paper) == 1.0
    # Ten failures and no success, or one in eleven: given up. Nine failures: not yet.
    assert state_score(10, 0, 5, paper) == 0.0
    assert state_score(11, 1, 5, paper) == 0.0
    assert state_score(9, 0, 5, paper) == 1.0
    # 12 failures, 2 successes: rate 1/7 > 0.1. lambda_2 = ln 2: exp(-ln 2 / 7) = 2^(-1/7).
    assert state_score(14, 2, 2, RELEASED) == pytest.approx(2 ** (-1 / 7), rel=1e-6)
    assert state_score(14, 2, 2, paper) == pytest.approx(2 ** (-50 / 7), rel=1e-6)
    # A success rate at zeta is given up, but only where 10 failed: 1 of 10 is 9 failures.
    assert state_score(1, 0, 5, StateScoreConfig(xi=1, zeta=0)) == 0.0
    assert state_score(10, 1, 2, RELEASED) == pytest.approx(2**-0.1, rel=1e-6)
    # The rate has 1e-6 in its denominator: 2^(-1 / 1.000001), to the last digits.
    assert state_score(1, 1, 2, RELEASED) == pytest.approx(2 ** (-1 / (1 + 1e-6)), rel=1e-12)
    # At the first turn lambda is 0: whatever the rate, 1.
    assert state_score(4, 4, 1, paper) == 1.0


@pytest.mark.parametrize(
    ("alpha", "clocks", "expected"),
    [
        # The largest score between: rate just above 0.1 at t = 2 gives exp(-50 ln 2 * 0.1) = 0.03.
        (50.0, (2, 5, 15), {0, 1, 8}),
        (50.0, (2, 100, 1000), {0, 1, 8}),
        (1.0, (2, 5, 15), set(range(9))),
    ],
)
def test_rollouts_are_nearly_binary_with_alpha_50_and_not_with_1(alpha, clocks, expected):
    cfg = StateScoreConfig(alpha=alpha)
    # Over every history of up to 40 trajectories.
    histories = [(n, wins) for n in range(41) for wins in range(n + 1)]
    assert expected == {rollouts_at(state_score(*h, t, cfg)) for t in clocks for h in histories}


def test_the_turns_reward_by_hand():
    # A first visit: w = 1/2, so only novelty and success count.
    fresh = {"before": 1.0, "after": 0.4, "visits": 0, "cfg": PAPER}
    assert turn_reward(moved=True, success=0.0, **fresh) == 0.5
    assert turn_reward(moved=False, success=0.0, **fresh) == 0.0
    assert turn_reward(moved=True, success=1.0, **fresh) == 1.0


def test_novelty_weighs_less_with_every_visit():
    # 1/2 on the first visit, e^-0.3 / 2 after three; constant or 0 in the ablations.
    assert novelty_weight(0, PAPER) == 0.5
    assert novelty_weight(3, PAPER) == pytest.approx(math.exp(-0.3) / 2)
    assert novelty_weight(3, StateScoreConfig(novelty_decay=0.2)) == pytest.approx(
        math.exp(-0.6) / 2
    )
    assert novelty_weight(3, StateScoreConfig(fixed_weight=0.2)) == 0.2
    assert novelty_weight(3, StateScoreConfig(novelty=False)) == 0.0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, math.exp(-1) / 2 + (0.5 - math.exp(-1) / 2) * 0.5),
        ({"novelty": False}, 0.5 * 0.5),
        ({"score_difference": False}, math.exp(-1) / 2),
        ({"fixed_weight": 0.2}, 0.2 + 0.3 * 0.5),
    ],
)
def test_after_ten_visits_score_differences_count_as_well_as_novelty(changes, expected):
    # w = e^-1 / 2; the difference of scores weighs 1/2 - w.
    known = {"moved": True, "before": 0.9, "after": 0.4, "visits": 10, "success": 0.0}
    assert turn_reward(**known, cfg=StateScoreConfig(**changes)) == pytest.approx(expected)


@settings(max_examples=50)
@given(
    n=st.integers(0, 500),
    share=st.floats(0, 1),
    t=st.integers(1, 10_000),
    alpha=st.floats(0, 100),
)
def test_scores_lie_between_0_and_1_and_fall_with_success(n, share, t, alpha):
    cfg = StateScoreConfig(alpha=alpha)
    wins = int(share * n)
    score = state_score(n, wins, t, cfg)
    assert 0.0 <= score <= 1.0
    assert 0 <= rollouts_at(score) <= 8
    if 0 < wins and n - wins + 1 < cfg.xi:  # with one success less it is no dead end either
        assert score <= state_score(n, wins - 1, t, cfg)


def test_a_state_counts_once_per_trajectory():
    table, by_trajectories = StateTable(), StateScoreConfig(alpha=1.0, lambda_clock="global")
    assert table.score(7, 5, by_trajectories) == 1.0
    table.record([7, 7, 8], True)
    # ln 1 = 0: before the first trajectory t is 1, after it 2.
    assert table.score(7, 5, by_trajectories) == pytest.approx(1 / 2, rel=1e-5)
    table.record([7], False)
    assert (table.visits(7), table.visits(8), table.visits(9)) == (2, 1, 0)
    assert len(table) == 2 and (table.trajectories, table.solved) == (2, 1)
    kept = table.state_dict()
    assert sorted(zip(kept["states"], kept["visits"], kept["successes"], strict=True)) == [
        (7, 2, 1),
        (8, 1, 1),
    ]
    # lambda_2 = ln 2, rate 1/2
    assert table.score(7, 1, RELEASED) == pytest.approx(2**-0.5, rel=1e-6)
    table.record([9], False)
    # Three trajectories so far: t = 1 + 3, whatever the turn.
    for depth in (0, 1, 9):
        assert table.score(7, depth, by_trajectories) == pytest.approx(4**-0.5, rel=1e-6)
    again = StateTable()
    again.load_state_dict(table.state_dict())
    assert again.state_dict() == table.state_dict()
    # At t = 3: 8 was passed by a success alone, 1/3; 9 by a failure, 1; 7: 3^-0.5 = 0.58.
    assert table.high_share(RELEASED, depth=2) == pytest.approx(2 / 3)
    # At t = 2, where nothing else is said: 8 has 1/2 and a little, which is high, 7 more.
    assert table.high_share(RELEASED) == 1.0
    # 1/2 itself is not: alpha undoes the 1e-6 of the rate.
    assert table.high_share(StateScoreConfig(alpha=1 + 1e-6)) == pytest.approx(2 / 3)
    assert StateTable().high_share(RELEASED) == 0.0
    # A state that was never passed is not given up.
    assert StateTable().score(7, 3, StateScoreConfig(xi=1)) == 1.0


def test_the_rewards_of_an_episode_by_hand():
    # State 10 was passed once and solved, 20 twice and solved once. The episode stays in 10 for a
    # turn, comes to 20, and ends somewhere else with a score of 0.8.
    table = StateTable()
    for states, success in (([10], True), ([20, 30], False), ([20], True)):
        table.record(states, success)
    # S = t^-rate with t the turn from 1; w = e^(-0.1 N) / 2. An end was never passed: 1.
    scores, w10, w20 = (1.0, 1 / 2, 3**-0.5), math.exp(-0.1) / 2, math.exp(-0.2) / 2
    for end, after in (("unseen", 1.0), ("mastered", 0.0)):
        cfg = StateScoreConfig(alpha=1.0, end=end)
        found = episode_rewards([1, 1, 2, 3], [10, 10, 20, 40], 0.8, table, cfg)
        expected = [
            (0.5 - w10) * (scores[0] - scores[1]),
            w10 + (0.5 - w10) * (scores[1] - scores[2]),
            w20 + (0.5 - w20) * (scores[2] - after) + 0.8 / 2,
        ]
        assert found == pytest.approx(expected, rel=1e-5)


RATES = StateScoreConfig(differences="rates", novelty=False)


def history():
    """Three of four trajectories through 10 succeed; 20 is where they do, 30 where ten fail."""
    table = StateTable()
    for _ in range(3):
        table.record([10, 20], True)
    for _ in range(10):
        table.record([30], False)
    table.record([10, 30], False)
    return table


def rewards(cfg):
    """Rewards of the ways from 10: to 20, to 30, to a new state, to success, to failure."""
    table = history()
    ways = [(after, None) for after in (20, 30, 99)] + [(98, 1.0), (98, 0.0)]
    return [
        table.reward(10, after, moved=True, depth=1, gained=gained, cfg=cfg)
        for after, gained in ways
    ]


def test_score_differences_reward_moving_into_a_given_up_state_most():
    # t = 2 at state 10 and 3 at the next; S = 2^-0.75 = 0.595 there, 1/3 at 20 where all succeed,
    # 0 at 30, which is given up, 1 where nobody was: at either end, unless ends count as mastered.
    here = 2**-0.75
    for end, after in (("unseen", 1.0), ("mastered", 0.0)):
        cfg = StateScoreConfig(alpha=1.0, novelty=False, end=end)
        expected = [here - 1 / 3, here, here - 1, here - after + 1, here - after]
        assert rewards(cfg) == pytest.approx([e / 2 for e in expected], rel=1e-5)


def buying_too_early(end, updates=150):
    """Train tabular policies on four pages, each with "buy" and "look on"; return their success.

    "buy" is right with chance 0, 0.02, 0.1 and 0.6; all begin by buying with chance 0.25.
    """
    right, cfg = np.array([0.0, 0.02, 0.1, 0.6]), StateScoreConfig(end=end)
    rng, table, logit = np.random.default_rng(0), StateTable(), np.full(4, np.log(1 / 3))
    for _ in range(updates):
        slope, count = np.zeros(4), 0
        for task in rng.integers(40, size=16).tolist():
            page, passed = 0, []
            while page is not None:
                key, chance = 10 * task + page, 1 / (1 + np.exp(-logit[page]))
                rollouts = rollouts_at(table.score(key, page, cfg))
                if not rollouts:
                    break
                buys = rng.random(rollouts) < chance
                wins = buys & (rng.random(rollouts) < right[page])
                over = buys | (page == 3)
                reward = [
                    table.reward(
                        key,
                        key + 5 if ends else key + 1,
                        moved=True,
                        depth=page,
                        gained=float(win) if ends else None,
                        cfg=cfg,
                    )
                    for ends, win in zip(over, wins, strict=True)
                ]
                spread = np.std(reward, ddof=1) if rollouts > 1 else 0.0
                if spread > 1e-9:
                    gain = (np.array(reward) - np.mean(reward)) / spread
                    slope[page] += gain @ (buys - chance)
                count += rollouts
                passed.append(key)
                best = int(np.argmax(reward))
                if over[best]:
                    table.record(passed, float(wins[best]))
                page = None if over[best] else page + 1
        logit += 0.5 * slope / max(1, count)
    chance = 1 / (1 + np.exp(-logit))
    return float((np.cumprod(np.append(1, 1 - chance[:-1])) * chance * right).sum()), chance[0]


def test_an_end_that_counts_as_mastered_teaches_to_buy_too_early():
    (unseen, _), (mastered, early) = buying_too_early("unseen"), buying_too_early("mastered")
    # 0.25 * (0.75 * 0.02 + 0.75^2 * 0.1 + 0.75^3 * 0.6) = 8.1 % at first.
    assert unseen > 0.11 and mastered < 0.03 and early > 0.7


@pytest.mark.parametrize("other", [{"differences": "rates"}, {"score_difference": False}])
def test_the_score_of_an_end_needs_differences_of_scores(other):
    with pytest.raises(ConfigError, match="end is 'mastered', which has no effect"):
        StateScoreConfig(end="mastered", **other)


def test_a_turn_limit_reached_in_a_passed_state_has_that_states_score():
    # Looked up like any other: 20, where all succeed, is 1/3 at the third turn.
    table, cfg = history(), StateScoreConfig(alpha=1.0, novelty=False)
    found = table.reward(10, 20, moved=True, depth=1, gained=0.0, cfg=cfg)
    assert found == pytest.approx((2**-0.75 - 1 / 3) / 2, rel=1e-5)


def test_rate_differences_reward_moving_to_higher_success():
    assert rewards(RATES) == pytest.approx([0.25, -0.75, 0.0, 0.25, -0.75])
    # Of a state that nobody passed all that is known is 3 of 14.
    new = history().reward(99, 20, moved=True, depth=0, gained=None, cfg=RATES)
    assert new == pytest.approx(11 / 14)


def test_novelty_weighs_against_rates():
    # Four visits: w = e^-0.4 / 2, and 1 - w for the difference, the outcome being in it.
    w = math.exp(-0.4) / 2
    found = rewards(StateScoreConfig(differences="rates"))
    expected = [w + (1 - w) * rate for rate in (0.25, -0.75, 0.0, 0.25, -0.75)]
    assert found == pytest.approx(expected)
    # An action that leaves the state as it was earns no novelty.
    cfg = StateScoreConfig(differences="rates")
    stayed = history().reward(10, 20, moved=False, depth=1, gained=None, cfg=cfg)
    assert stayed == pytest.approx((1 - w) * 0.25)


def test_rates_are_means_of_graded_outcomes():
    table = StateTable()
    for states, score in (([10], 0.25), ([10, 20], 0.75)):
        table.record(states, score)
    again = StateTable()
    again.load_state_dict(table.state_dict())
    for known in (table, again):
        assert known.reward(10, 20, moved=True, depth=0, gained=None, cfg=RATES) == 0.25
        # A mean score earns nothing, whether the dialogue ends with it or goes on.
        assert known.reward(10, 99, moved=True, depth=0, gained=0.5, cfg=RATES) == 0.0
        assert known.reward(10, 99, moved=True, depth=0, gained=None, cfg=RATES) == 0.0


def test_the_rate_of_a_single_trajectory_is_its_outcome():
    table = StateTable()
    table.record([10], True)
    assert table.reward(99, 98, moved=True, depth=0, gained=1.0, cfg=RATES) == 0.0


# -- section 3.5: every state is a bandit ----------------------------------------------------------
# A state has a fixed probability of success, and is visited again and again. The paper's abstract
# says what holds then; the bounds here are our own derivations, from Hoeffding's and Chernoff's
# inequalities.


def spent(clock, uniform=False, alpha=5.0, chance=0.2, rounds=4096, seeds=24):
    """Return the mean rollouts beyond those of a solved state, after each fourfold of rounds.

    A round allocates ``8 S`` rollouts to the state at its second turn, and one is completed.
    """
    cfg = StateScoreConfig(alpha=alpha, lambda_clock=clock)
    marks, found = [rounds // 16, rounds // 4, rounds], []
    for seed in range(seeds):
        table, wins = StateTable(), np.random.default_rng(seed).random(rounds) < chance
        share = np.empty(rounds)
        for k, win in enumerate(wins.tolist()):
            share[k] = 1.0 if uniform else table.score(7, 1, cfg)
            table.record([7], win)
        total = 8 * np.cumsum(share)
        found.append([total[mark - 1] for mark in marks])
    return np.mean(found, axis=0)


def test_regret_of_allocation_is_logarithmic_in_the_number_of_trajectories():
    # lambda_t = 5 ln t and a rate of 0.2: S = 1 / t, whose sum is ln T. Each fourfold of rounds
    # adds 8 ln 4 = 11.1, and a little for rates that are still uncertain; sqrt(T) would double.
    first, second, third = spent("global")
    grown = np.array([second - first, third - second])
    assert (grown > 0.9 * 8 * math.log(4)).all() and (grown < 1.5 * 8 * math.log(4)).all()
    assert third < 2 * 8 * (1 + math.log(4096))
    # The same number everywhere is linear: each fourfold adds four times as much.
    first, second, third = spent("global", uniform=True)
    assert (third, (third - second) / (second - first)) == (8 * 4096, 4.0)


def test_regret_of_allocation_is_linear_by_the_clock_of_turns():
    # "Constant for a fixed depth": S stays 2^-1 at the second turn, however much is known. With the
    # paper's alpha of 50 it is 2^-10 there, which rounds up to the single rollout without update.
    first, second, third = spent("depth", seeds=4)
    assert (third - second) / (second - first) == pytest.approx(4.0, rel=0.05)
    assert third == pytest.approx(8 * 4096 / 2, rel=0.05)
    assert rollouts_at(state_score(4096, 819, 2, PAPER)) == 1


def test_a_hopeless_state_costs_a_fixed_number_of_rollouts():
    # Eight fail, which are too few to give it up, and eight more: then it is cut for good.
    table, rollouts = StateTable(), []
    for _ in range(5):
        rollouts.append(rollouts_at(table.score(7, 1, PAPER)))
        for _ in range(rollouts[-1]):
            table.record([7], False)
    assert rollouts == [8, 8, 0, 0, 0]


@pytest.mark.parametrize(("states", "gap"), [(2, 0.3), (4, 0.3), (4, 0.15)])
def test_the_best_of_several_states_has_the_lowest_score_after_enough_trajectories(states, gap):
    # Rates 0.6 and 0.6 - gap. The order is wrong only if a rate is off by half the gap, which by
    # Hoeffding has probability exp(-n gap^2 / 2) in each: 2 / gap^2 ln(states / delta) are enough.
    delta, rng = 0.05, np.random.default_rng(0)
    chances = np.array([0.6] + [0.6 - gap] * (states - 1))

    def wrong(n):
        wins = rng.binomial(n, chances, size=(1000, states))
        score = np.array([[state_score(n, int(w), 2, RELEASED) for w in row] for row in wins])
        return float((score[:, 0] >= score[:, 1:].min(axis=1)).mean())

    enough = math.ceil(2 / gap**2 * math.log(states / delta))
    assert enough == {(2, 0.3): 82, (4, 0.3): 98, (4, 0.15): 390}[states, gap]
    assert wrong(enough) <= delta
    assert wrong(enough // 16) > delta  # and it takes more than a few


def given_up(chance, cfg, trajectories=60, states=2000):
    """Return the share of states that are ever given up, after 11 trajectories and after all."""
    rng = np.random.default_rng(1)
    early = ever = 0
    for wins in np.cumsum(rng.random((states, trajectories)) < chance, axis=1).tolist():
        scores = [state_score(n, won, 2, cfg) for n, won in enumerate(wins, start=1)]
        early += 0.0 in scores[:11]
        ever += 0.0 in scores
    return early / states, ever / states


@pytest.mark.parametrize("chance", [0.5, 0.7])
def test_a_solvable_state_is_rarely_given_up(chance):
    # Chernoff: after n trajectories the rate is at most zeta with probability exp(-n KL), KL of
    # zeta from the chance; before xi failures nothing is given up, so the sum starts at n = xi.
    xi, zeta = PAPER.xi, PAPER.zeta
    kl = zeta * math.log(zeta / chance) + (1 - zeta) * math.log((1 - zeta) / (1 - chance))
    bound = math.exp(-xi * kl) / (1 - math.exp(-kl))
    assert bound < 0.09
    early, ever = given_up(chance, PAPER)
    assert early <= ever <= bound
    # Within 11 trajectories: the first ten fail, or one of them succeeds and the eleventh fails.
    exact = (1 - chance) ** 10 + 10 * chance * (1 - chance) ** 10
    assert early == pytest.approx(exact, abs=3 * math.sqrt(exact / 2000))


def test_a_larger_xi_and_a_smaller_zeta_give_up_fewer_solvable_states():
    # The paper's sensitivity: (xi, zeta) of 5, 0.05 to 50, 0.3.
    shares = [given_up(0.3, StateScoreConfig(xi=xi))[1] for xi in (5, 10, 20)]
    assert shares[0] > shares[1] > shares[2]
    shares = [given_up(0.3, StateScoreConfig(zeta=zeta))[1] for zeta in (0.05, 0.1, 0.2)]
    assert shares[0] < shares[1] < shares[2]
