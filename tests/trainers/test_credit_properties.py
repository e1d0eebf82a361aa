"""Properties of every method's credit, on random batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from creditrl.trainers.credit.hindsight import segment_reward
from creditrl.trainers.credit.progress import attributed_reward, mean_progress, sum_objective
from creditrl.trainers.credit.spread import first_turns, turns_to_tokens
from creditrl.trainers.methods import Method, list_methods
from creditrl.types import TokenTable, TurnTable

OWN = {
    info.name: info.method(info.config()) for info in list_methods() if info.name not in ("mine",)
}
GROUPED = ("grpo", "dr_grpo", "rloo", "gspo", "dapo", "gigpo", "hgpo", "rtmc")
"""Methods whose credit of a group does not depend on other groups."""


@dataclass
class Case:
    """A batch with every column that any method reads."""

    turns: TurnTable
    tokens: TokenTable

    def select(self, episodes: list[int]) -> tuple[Case, np.ndarray]:
        """Return the batch of some episodes, in this order, and their rows among the turns."""
        rows = np.concatenate([np.flatnonzero(self.turns.episode_N == b) for b in episodes])
        number = np.concatenate(
            [np.full((self.turns.episode_N == b).sum(), at) for at, b in enumerate(episodes)]
        )
        places = [np.flatnonzero(self.tokens.turn_M == n) for n in rows]
        token_rows = np.concatenate(places).astype(int)
        turn_M = np.concatenate([np.full(len(m), at) for at, m in enumerate(places)]).astype(int)
        taken = _taken(self.turns, rows)
        # Segments are numbered upwards over a batch.
        segment = taken.scores["segment_N"]
        begins = np.append(True, (segment[1:] != segment[:-1]) | (number[1:] != number[:-1]))
        turns = replace(
            taken.with_scores(segment_N=np.cumsum(begins)),
            episode_N=number,
            episode_ids=tuple(self.turns.episode_ids[b] for b in episodes),
        )
        return Case(turns, replace(_taken(self.tokens, token_rows), turn_M=turn_M)), rows


def _taken(table: Any, rows: np.ndarray) -> Any:
    changes = {
        name: getattr(table, name)[rows]
        for name in table.__dataclass_fields__
        if isinstance(getattr(table, name), np.ndarray)
    }
    scores = {name: column[rows] for name, column in table.scores.items()}
    return replace(table, **changes, scores=scores)


def make(
    rng: np.random.Generator,
    group_B: np.ndarray,
    *,
    outcome: Callable[[int], np.ndarray] | None = None,
    tokens_most: int = 3,
) -> Case:
    """Return a random batch; outcomes of 0 and 1 on the last turn, which every method takes."""
    episodes = len(group_B)
    length_B = rng.integers(1, 5, size=episodes)
    episode_N = np.repeat(np.arange(episodes), length_B)
    last_N = np.append(episode_N[1:] != episode_N[:-1], True)
    success_B = rng.random(episodes) < 0.5 if outcome is None else outcome(episodes) > 0
    reward_N = np.where(last_N & success_B[episode_N], 1.0, 0.0).astype(np.float32)
    n = len(episode_N)
    first_B, _ = first_turns(episode_N)

    def normal(size: int) -> np.ndarray:
        return rng.normal(size=size).astype(np.float32)

    turns = TurnTable(
        reward_N=reward_N,
        episode_N=episode_N,
        turn_N=np.arange(n) - first_B[episode_N],
        task_N=group_B[episode_N],
        group_N=group_B[episode_N],
        grounded_N=rng.random(n) < 0.8,
        return_N=success_B[episode_N].astype(np.float32),
        success_N=success_B[episode_N],
        truncated_N=~success_B[episode_N],
        state_N=rng.integers(1, 4, size=n),
        scores={
            "score_N": success_B[episode_N].astype(np.float32),
            "action_N": rng.integers(3, size=n),
            "segment_N": (episode_N * 5 + (np.arange(n) - first_B[episode_N]) // 2),
            **{
                name: normal(n)
                for name in (
                    "progress_N",
                    "process_N",
                    "implicit_N",
                    "segment_reward_N",
                    "discriminator_N",
                    "q_N",
                    "v_N",
                    "value_N",
                    "promise_N",
                )
            },
        },
        episode_ids=tuple(f"e{b}" for b in range(episodes)),
    )
    turn_M = np.repeat(np.arange(n), rng.integers(0, tokens_most + 1, size=n))
    m = len(turn_M)
    tokens = TokenTable(
        turn_M=turn_M,
        logprob_M=-np.abs(normal(m)),
        old_logprob_M=-np.abs(normal(m)),
        ref_logprob_M=-np.abs(normal(m)),
        value_M=normal(m),
        scores={"implicit_M": normal(m), "hindsight_M": -np.abs(normal(m))},
    )
    return Case(turns, tokens)


def credit_of(method: Method[Any], case: Case) -> np.ndarray:
    """Return the credit of every token, whatever its grain."""
    credit = method.credit(case.turns, case.tokens)
    if credit.advantage_M is not None:
        return np.asarray(credit.advantage_M)
    return turns_to_tokens(credit.advantage_N, case.tokens.turn_M)


batches = st.tuples(st.integers(0, 2**32 - 1), st.integers(2, 8), st.integers(1, 3))


def drawn(key: tuple[int, int, int]) -> tuple[Case, np.random.Generator]:
    seed, episodes, groups = key
    rng = np.random.default_rng(seed)
    return make(rng, np.sort(rng.integers(groups, size=episodes))), rng


@pytest.mark.parametrize("name", sorted(OWN))
@settings(max_examples=15)
@given(key=batches)
def test_the_order_of_episodes_and_of_members_does_not_matter(name, key):
    case, rng = drawn(key)
    order = rng.permutation(case.turns.num_episodes).tolist()
    other, rows = case.select(order)
    before, after = credit_of(OWN[name], case), credit_of(OWN[name], other)
    token_rows = np.concatenate([np.flatnonzero(case.tokens.turn_M == n) for n in rows])
    np.testing.assert_allclose(after, before[token_rows.astype(int)], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", sorted(OWN))
@settings(max_examples=15)
@given(key=batches)
def test_the_numbers_of_groups_and_states_are_names(name, key):
    case, rng = drawn(key)
    turns = case.turns
    renamed = replace(
        turns,
        group_N=1000 - 7 * turns.group_N,
        state_N=2**61 - 3 * turns.state_N,
        episode_ids=tuple(f"other{b}" for b in range(turns.num_episodes)),
    )
    np.testing.assert_allclose(
        credit_of(OWN[name], Case(renamed, case.tokens)),
        credit_of(OWN[name], case),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("name", sorted(OWN))
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1), alone=st.booleans())
def test_singletons_and_equal_returns_are_finite(name, seed, alone):
    rng = np.random.default_rng(seed)
    groups = np.arange(4) if alone else np.repeat([0, 1], 2)
    value = float(rng.integers(2))
    case = make(rng, groups, outcome=lambda size: np.full(size, value))
    assert np.isfinite(credit_of(OWN[name], case)).all()


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "gspo", "dapo"])
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), value=st.sampled_from([0.0, 1.0]))
def test_equal_returns_give_a_group_nothing(name, seed, value):
    rng = np.random.default_rng(seed)
    case = make(rng, np.repeat([0, 1], 3), outcome=lambda size: np.full(size, value))
    assert not credit_of(OWN[name], case).any()


@pytest.mark.parametrize("name", GROUPED)
@settings(max_examples=15)
@given(key=batches)
def test_other_groups_in_the_batch_change_nothing(name, key):
    # As padding would: rows that are none of a group's business.
    case, _ = drawn(key)
    mine = np.unique(case.turns.episode_N[case.turns.group_N == case.turns.group_N[0]]).tolist()
    part, rows = case.select(mine)
    token_rows = np.flatnonzero(np.isin(case.tokens.turn_M, rows))
    np.testing.assert_allclose(
        credit_of(OWN[name], part), credit_of(OWN[name], case)[token_rows], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("name", sorted(OWN))
@settings(max_examples=10)
@given(key=batches)
def test_a_turn_without_tokens_leaves_every_other_number_finite(name, key):
    case, rng = drawn(key)
    mute = rng.integers(len(case.turns))
    keep = np.flatnonzero(case.tokens.turn_M != mute)
    found = credit_of(OWN[name], Case(case.turns, _taken(case.tokens, keep)))
    assert len(found) == len(keep) and np.isfinite(found).all()


@pytest.mark.parametrize(("name", "power"), [("grpo", 0), ("gspo", 0), ("dr_grpo", 1), ("rloo", 1)])
@settings(max_examples=15)
@given(key=batches, scale=st.floats(0.1, 100))
def test_the_scale_of_returns_goes_out_with_the_deviation_and_stays_without(
    name, power, key, scale
):
    case, _ = drawn(key)
    # A group of one keeps its raw outcome, which has the scale.
    turns = case.turns
    size = np.bincount(turns.group_N[first_turns(turns.episode_N)[0]])[turns.group_N]
    larger = replace(turns, return_N=turns.return_N * np.float32(scale))
    before = credit_of(OWN[name], case)
    after = credit_of(OWN[name], Case(larger, case.tokens))
    several = size[case.tokens.turn_M] > 1
    np.testing.assert_allclose(
        after[several], (before * scale**power)[several], rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "gspo", "dapo"])
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_groups_advantages_sum_to_zero_over_its_members(name, seed):
    rng = np.random.default_rng(seed)
    case = make(rng, np.repeat([0, 1, 2], 4))
    advantage_N = OWN[name].credit(case.turns, case.tokens).advantage_N
    first_B, _ = first_turns(case.turns.episode_N)
    sums = np.bincount(case.turns.group_N[first_B], weights=advantage_N[first_B])
    np.testing.assert_allclose(sums, 0, atol=1e-4)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), beta=st.floats(0, 2))
def test_spas_contributions_sum_to_the_prediction(seed, beta):
    rng = np.random.default_rng(seed)
    case = make(rng, np.zeros(5, int))
    turns, outcome_B = case.turns, rng.random(5)
    progress_N = turns.scores["progress_N"]
    sums_B = np.bincount(turns.episode_N, weights=progress_N)
    # The loss is that of these sums as predictions of the outcome.
    loss, slope_N = sum_objective(progress_N, turns.episode_N, outcome_B[turns.episode_N])
    assert loss == pytest.approx(float(((sums_B - outcome_B) ** 2).mean()), rel=1e-4)
    np.testing.assert_allclose(slope_N, 2 * (sums_B - outcome_B)[turns.episode_N] / 5, atol=1e-5)
    # Rewards sum to the prediction and what grounding pays.
    reward_N = attributed_reward(progress_N, turns.grounded_N, alpha=1.0, beta=beta)
    paid_B = np.bincount(turns.episode_N, weights=turns.grounded_N) * beta
    np.testing.assert_allclose(
        np.bincount(turns.episode_N, weights=reward_N), sums_B + paid_B, atol=1e-4
    )
    mean_N = mean_progress(outcome_B[turns.episode_N], turns.episode_N)
    np.testing.assert_allclose(np.bincount(turns.episode_N, weights=mean_N), outcome_B, atol=1e-5)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_hisrs_rewards_have_l1_norm_1_in_every_episode(seed):
    rng = np.random.default_rng(seed)
    case = make(rng, np.zeros(5, int))
    turns = case.turns
    ends_N = np.append(np.diff(turns.scores["segment_N"]) != 0, True)
    reward_N = segment_reward(
        turns.scores["segment_reward_N"] * ends_N,
        np.exp(rng.normal(size=len(turns))).astype(np.float32),
        turns.scores["segment_N"],
        turns.episode_N,
        turns.grounded_N,
        alpha=0.0,
    )
    np.testing.assert_allclose(np.bincount(turns.episode_N, weights=np.abs(reward_N)), 1, atol=1e-4)
