"""Many methods score the same episodes: each as in training, held out, policy unchanged."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import make_agent, make_policy, make_trajectory, make_venv

from creditrl.agents.play.rollout import Recording, run_episodes
from creditrl.agents.prompts import get_form
from creditrl.errors import CreditInputError, CreditRLError
from creditrl.trainers.after.side_by_side import credit_side_by_side
from creditrl.trainers.batch import build_rows, token_table, turn_table
from creditrl.trainers.collect.tree import TreeConfig
from creditrl.trainers.config import RolloutConfig
from creditrl.trainers.credit.state_scores import StateScoreConfig
from creditrl.trainers.methods import Method, list_methods, method_info
from creditrl.trainers.methods.needs import Needs
from creditrl.trainers.methods.three_spo import ThreeSPO, ThreeSPOConfig
from creditrl.trainers.models.configs import LoRAConfig
from creditrl.trainers.models.learned.base import LearnedModel
from creditrl.trainers.models.policy import Policy
from creditrl.trainers.rewards import reward_columns
from creditrl.types import Credit, Trajectory, Turn

ROLLOUT = RolloutConfig(groups=4, group_size=4, max_new_tokens=1, reward_scale=0.1)
OWN = [info.name for info in list_methods()]


def play(policy: Policy, *, group_size: int = 4, version: int = 0, **changes: Any):
    """Return episodes of 4 groups, with everything recorded that any method reads."""
    record = {"hash_states": "state", "segments": True, "expert_actions": True, **changes}
    return run_episodes(
        make_venv(16, group_size),
        make_agent(policy, seed=version),
        get_form("plain"),
        seed=version,
        record=Recording(label=f"u{version}", policy_version=version, **record),
    )


def of(*names: str) -> dict[str, Method[Any]]:
    configs = {name: method_info(name).config() for name in names}
    if "hisr" in names:  # instructions take long
        bare = dataclasses.replace(configs["hisr"].hindsight, bare=True)
        configs["hisr"] = dataclasses.replace(configs["hisr"], hindsight=bare)
    return {name: method_info(name).method(config) for name, config in configs.items()}


@pytest.fixture(scope="module")
def policy() -> Policy:
    return make_policy()


@pytest.fixture(scope="module")
def episodes(policy) -> list[Trajectory]:
    return play(policy)


@pytest.mark.parametrize("name", OWN)
def test_every_method_scores_any_recorded_run_and_changes_no_weight(name, policy, episodes):
    before = {key: value.clone() for key, value in policy.model.state_dict().items()}
    table, credit = credit_side_by_side(of(name), episodes, policy, ROLLOUT, passes=1)
    assert len(table) == sum(len(t.turns) for t in episodes)
    assert credit[name].shape == (len(table),) and credit[name].dtype == np.float32
    assert np.isfinite(credit[name]).all()
    for key, value in policy.model.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)


def test_the_fitting_of_a_methods_models_is_shown_step_by_step(policy, episodes):
    told = []

    def show(done, seconds, **shown):
        told.append((done, shown))

    credit_side_by_side(of("istar"), episodes, policy, ROLLOUT, passes=2, show=show)
    steps = [shown["step"] for done, shown in told[:-1] if done == 0]
    assert [s for s in steps if s.startswith("fits pass 2/2, batch 1/")]
    assert len([s for s in steps if s.startswith("scores batch ")]) == 2  # by each half's models
    assert told[-1] == (1, {"method": "istar"})


def test_each_update_is_its_own_batch_and_scored_as_in_training(policy, episodes):
    # PG's baseline is the batch's mean return, and group 0 of two updates are two groups.
    later = play(policy, version=1)
    methods = of("pg", "grpo", "gigpo", "rloo")
    mixed = [t for pair in zip(episodes, later, strict=True) for t in pair]
    table, both = credit_side_by_side(methods, mixed, policy, ROLLOUT)
    assert len(np.unique(table.group_N)) == 8
    mine = np.isin(table.episode_N, np.arange(0, len(mixed), 2))
    for own, part in ((mine, episodes), (~mine, later)):
        turns, tokens = reward_columns(turn_table(part), ROLLOUT), token_table(part)
        for name, method in methods.items():
            expected = method.credit(turns, tokens).advantage_N
            np.testing.assert_array_equal(both[name][own], expected)


class Sampled(Method[Any]):
    """Gives the sampler's log-probabilities as credit."""

    name = "pg"
    needs = Needs(logprobs=True)

    def credit(self, turns, tokens):
        return Credit(self.name, advantage_M=tokens.old_logprob_M)


def test_probabilities_among_lists_that_are_not_stored_are_not_compared(policy, episodes):
    one_in_four = [
        dataclasses.replace(
            t, turns=tuple(dataclasses.replace(u, logprobs=(-1.5,)) for u in t.turns)
        )
        for t in episodes
    ]
    rows = build_rows(one_in_four, "window")
    for actions, expected in (("free", -1.5), ("listed", policy.score(rows, temperature=1.0))):
        rollout = dataclasses.replace(ROLLOUT, actions=actions)
        _, credit = credit_side_by_side({"pg": Sampled(None)}, one_in_four, policy, rollout)
        np.testing.assert_allclose(credit["pg"], expected, rtol=1e-5)


class Teller(LearnedModel):
    """Scores each turn by whether its episode was among those it was fitted to."""

    name = "teller"

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.fits = 0

    def score(self, batch):
        told = [float(t.id in self.seen) for t in batch.trajectories for _ in t.turns]
        return batch.with_scores(told_N=np.array(told, dtype=np.float32))

    def fit(self, batch, credit):
        self.seen |= {t.id for t in batch.trajectories}
        self.fits += 1
        return {}


class Telling(Method[Any]):
    """Gives the model's scores as credit."""

    name = "pg"

    def models(self, policy, seed, temperature=1.0):
        self.made = [*getattr(self, "made", []), Teller()]
        return self.made[-1:]

    def credit(self, turns, tokens):
        return Credit(self.name, advantage_N=turns.require("told_N", hint="Teller adds it"))


def test_an_episode_is_scored_by_models_fitted_to_other_episodes(policy, episodes):
    method = Telling(None)
    of_one = dataclasses.replace(ROLLOUT, groups=1)
    _, credit = credit_side_by_side({"t": method}, episodes, policy, of_one, passes=3)
    assert not credit["t"].any()
    one, two = method.made
    assert one.seen | two.seen == {t.id for t in episodes} and not one.seen & two.seen
    assert one.fits == two.fits == 3 * 2  # three passes over two groups of one half
    tasks = {t.task.id for t in episodes if t.id in one.seen}
    assert tasks.isdisjoint(t.task.id for t in episodes if t.id in two.seen)
    # One model, if other episodes are given.
    given, (part, rest) = Telling(None), (episodes[:8], episodes[8:])
    _, credit = credit_side_by_side({"t": given}, part, policy, ROLLOUT, fit_on=rest, passes=1)
    assert not credit["t"].any()
    assert [model.seen for model in given.made] == [{t.id for t in rest}]


@pytest.mark.slow
def test_models_on_shared_base_weights_leave_no_adapter(episodes):
    policy = make_policy(lora=LoRAConfig(rank=2))
    played = play(policy)
    credit_side_by_side(of("istar", "hisr"), played, policy, ROLLOUT, passes=1)
    assert list(policy.model.peft_config) == ["default"]
    rows = build_rows(played)
    np.testing.assert_allclose(policy.score(rows), token_table(played).logprob_M, atol=1e-4)


def test_a_turns_credit_from_a_token_level_method_is_the_mean_over_its_tokens(policy, episodes):
    class Tokens(Method[Any]):
        name = "pg"

        def credit(self, turns, tokens):
            place_M = np.arange(len(tokens)) - np.searchsorted(tokens.turn_M, tokens.turn_M)
            return Credit(self.name, advantage_M=place_M.astype(np.float32))

    mute = dataclasses.replace(episodes[0].turns[0], reply_ids=(), logprobs=())
    first = dataclasses.replace(episodes[0], turns=(mute, *episodes[0].turns[1:]))
    _, credit = credit_side_by_side({"t": Tokens(None)}, [first, *episodes[1:]], policy, ROLLOUT)
    turns = [turn for t in [first, *episodes[1:]] for turn in t.turns]
    expected = [np.mean(range(len(turn.reply_ids))) if turn.reply_ids else 0.0 for turn in turns]
    np.testing.assert_allclose(credit["t"], expected)


def corridor(
    id: str, seen: str, success: bool, group: int = 0, score: float | None = None
) -> Trajectory:
    """Return an episode that saw one letter a turn, the last of them at its end."""
    turns = [Turn(letter, "go", "go", 0.0, prompt_ids=(1,), reply_ids=(2,)) for letter in seen]
    of = {"id": id, "env_id": "Toy/Corridor-v0", "group": group}
    of |= {"success": success, "score": float(success) if score is None else score}
    of |= {"final_observation": seen[-1]}
    return make_trajectory(turns[:-1], **of)


SHARED = TreeConfig(scope="shared")
ALPHA_1 = StateScoreConfig(alpha=1.0)
TEXT = ThreeSPOConfig(normalise="mean", scores=ALPHA_1, tree=SHARED, anchor="text")
THREE_SPO = {"s": ThreeSPO(TEXT)}


def test_three_spo_compares_transitions_from_equal_states(policy):
    # Two members leave A: one moves to B and succeeds there, the other stays (w = 1/2 with no
    # visit: rewards 1/2 and 0), then moves on at A a second time and fails at C (1/2). At B one
    # transition stands alone: 0. Mean of A's three: 1/3.
    played = [corridor("x", "ABZ", True), corridor("y", "AAC", False)]
    _, credit = credit_side_by_side(THREE_SPO, played, policy, ROLLOUT)
    np.testing.assert_allclose(credit["s"], [1 / 6, 0, -1 / 3, 1 / 6], atol=1e-6)


def test_three_spo_counts_states_of_earlier_episodes(policy):
    # One group before passed A and B once each, and failed: N = 1, rate 0, S = 1, w = exp(-.1)/2.
    # x moves to B and stays there to succeed: w, 1/2 + (1/2 - w); y stays at A twice, then fails.
    before = [corridor("b", "ABC", False, group=1), corridor("c", "ABC", False, group=1)]
    played = [corridor("x", "ABB", True), corridor("y", "AAB", False)]
    w = 0.5 * np.exp(-0.2)
    reward = [w, 0.0, w]  # out of A: x, y, and y again, which ends in B, where all failed: S' = 1
    expected = [reward[0], 0.0, reward[1], reward[2]] - np.mean(reward)
    expected[1] = 0.0
    _, given = credit_side_by_side(THREE_SPO, played, policy, ROLLOUT, fit_on=before)
    np.testing.assert_allclose(given["s"], expected, atol=1e-6)
    _, grown = credit_side_by_side(THREE_SPO, [*before, *played], policy, ROLLOUT)
    np.testing.assert_allclose(grown["s"][4:], expected, atol=1e-6)


def test_three_spo_compares_scores_with_those_of_earlier_episodes(policy):
    # A and B had 1/2. x moves to B (0) and ends with 0.8; y stays at A (0) and ends with 0.2. Mean
    # of A's three: -0.1.
    before = [corridor(name, "ABC", False, group=1, score=0.5) for name in "bc"]
    played = [corridor("x", "ABZ", True, score=0.8), corridor("y", "AAC", False, score=0.2)]
    rates = StateScoreConfig(novelty=False, differences="rates")
    tree = dataclasses.replace(SHARED, success="score")
    graded = dataclasses.replace(TEXT, scores=rates, tree=tree)
    _, credit = credit_side_by_side({"s": ThreeSPO(graded)}, played, policy, ROLLOUT, fit_on=before)
    np.testing.assert_allclose(credit["s"], [0.1, 0, 0.1, -0.2], atol=1e-6)


@pytest.mark.parametrize(
    ("name", "record", "message"),
    [
        ("gigpo", {"hash_states": None}, "source 'state'.*hold none.*--rollout.record all"),
        ("gigpo", {"hash_states": "text"}, "source 'state'.*some of source 'text'"),
        ("hisr", {"segments": False}, "sub-goal of each turn.*--rollout.record all"),
        ("stepagent", {"expert_actions": False}, "expert would have done.*--rollout.record all"),
        ("rloo", {"group_size": 1}, "every episode here is a group of its own"),
    ],
)
def test_missing_fields_of_episodes_are_named_with_how_to_record_them(
    name, record, message, policy
):
    played = play(policy, **record)
    states = record.get("hash_states", "state")
    with pytest.raises(CreditInputError, match=f"{name}.*{message}"):
        credit_side_by_side(of(name), played, policy, ROLLOUT, states=states)
    refused: dict[str, CreditRLError] = {}
    _, credit = credit_side_by_side(
        of("pg", name), played, policy, ROLLOUT, states=states, on_error=refused.__setitem__
    )
    assert list(credit) == ["pg"] and list(refused) == [name]


def test_state_hashes_are_computed_from_stored_texts(policy):
    played = play(policy, hash_states=None)
    _, credit = credit_side_by_side(of("hgpo") | THREE_SPO, played, policy, ROLLOUT)
    assert credit["hgpo"].any() and credit["s"].any()


def test_transitions_of_a_search_do_not_count_as_episodes(policy, episodes):
    part = dataclasses.replace(episodes[0], terminated=False, truncated=False)
    with pytest.raises(CreditInputError, match=f"Episode {part.id} is a single transition"):
        credit_side_by_side(of("grpo"), [part, *episodes[1:]], policy, ROLLOUT)


def test_models_need_two_tasks_or_other_episodes(policy, episodes):
    one = [t for t in episodes if t.group == 0]
    with pytest.raises(CreditInputError, match="ppo learns models.*of one task"):
        credit_side_by_side(of("ppo"), one, policy, ROLLOUT)
    credit_side_by_side(of("ppo"), one, policy, ROLLOUT, fit_on=episodes[4:], passes=1)
