"""The measurement behind ``creditrl bench exact``: credit of every method beside exact advantages.

A small policy plays groups of episodes of tiny tasks (:mod:`creditrl.bench.exact_mdps`). Its true
advantages are computed, so nothing in the truth is noise, and what a credit lacks is its own.

Letters: ``N`` turns, ``P`` pairs of a state and one of its actions, ``G`` groups.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from creditrl.agents.prompts import get_form
from creditrl.agents.rollout import run_episodes
from creditrl.bench.credit import bench_method
from creditrl.bench.exact_mdps import ENV_ID, MDPS, Exact, Mdp, State, solve
from creditrl.errors import CreditRLError
from creditrl.types import FloatArray, IntArray, Prompt, Trajectory

if TYPE_CHECKING:
    from creditrl.agents.transformers import TransformersAgent
    from creditrl.trainers.models.policy import Policy

__all__ = [
    "Agreement",
    "Turns",
    "agreement",
    "measure",
    "probabilities",
    "small_policy",
    "table_of_turns",
]

_ZERO = 1e-9
"""Smaller advantages are rounding errors of 0."""


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of some episodes beside what a policy's actions are worth."""

    pair_N: IntArray
    """What was done where: the number of its pair."""
    group_N: IntArray
    """Number of the turn's group, from 0 on."""
    state_P: IntArray
    """Number of the pair's state."""
    chance_P: FloatArray
    """Probability of the action in its state."""
    visits_P: FloatArray
    """Probability that an episode comes through the state."""
    advantage_P: FloatArray
    """``Q(s, a) - V(s)``."""
    episodes: int
    """How many episodes the turns are of."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a credit of turns agrees with exact advantages; NaN where a figure is not defined."""

    within: float
    """Share of the pairs of actions of one state that it orders as their values are, mean over
    states: the mean credit of each action is compared, and equal ones count a half."""
    cosine: float
    """Cosine between the policy gradient that it gives and the true one, for a table of logits.
    Actions are averaged within their state, so adding to all of a state's turns changes nothing."""
    error: float
    """Length of the difference between the two, in lengths of the true gradient."""
    signal: float
    """Signal-to-noise of the gradient per turn played: squared length of its mean over groups, over
    its variance times the turns of a group."""
    leakage: float
    """Share of all absolute credit that turns have whose true advantage is 0."""
    wasted: float
    """Mean absolute credit of these turns."""


def agreement(credit_N: FloatArray, turns: Turns) -> Agreement:
    """Compare credits of turns with the truth."""
    credit_N = np.asarray(credit_N, dtype=np.float64)
    pairs, states = len(turns.state_P), int(turns.state_P.max()) + 1
    count_P = np.bincount(turns.pair_N, minlength=pairs)
    sum_P = np.bincount(turns.pair_N, credit_N, minlength=pairs)
    seen_P = count_P > 0
    mean_P = np.divide(sum_P, count_P, out=np.zeros(pairs), where=seen_P)
    # Exact score function: an action's logit moves by pi(a) (C(a) - sum_b pi(b) C(b)).
    weight_P = np.where(seen_P, turns.chance_P, 0.0)
    whole_S = np.bincount(turns.state_P, weight_P, minlength=states)
    weight_P = np.divide(
        weight_P,
        whole_S[turns.state_P],
        out=np.zeros(pairs),
        where=whole_S[turns.state_P] > 0,
    )
    base_S = np.bincount(turns.state_P, weight_P * mean_P, minlength=states)
    found_P = turns.visits_P * weight_P * (mean_P - base_S[turns.state_P])
    true_P = turns.visits_P * turns.chance_P * turns.advantage_P
    length = float(np.linalg.norm(true_P))
    given = float(np.linalg.norm(found_P))
    points = given > _ZERO * float(np.abs(mean_P).max()) and length > _ZERO
    idle_N = np.abs(turns.advantage_P[turns.pair_N]) < _ZERO
    total = float(np.abs(credit_N).sum())
    return Agreement(
        within=_within(mean_P, seen_P, turns),
        cosine=float(found_P @ true_P) / (given * length) if points else np.nan,
        error=float(np.linalg.norm(found_P - true_P)) / length if length else np.nan,
        signal=_signal(credit_N, turns),
        leakage=float(np.abs(credit_N[idle_N]).sum()) / total if total else np.nan,
        wasted=float(np.abs(credit_N[idle_N]).mean()) if idle_N.any() else np.nan,
    )


def _within(mean_P: FloatArray, seen_P: np.ndarray[Any, Any], turns: Turns) -> float:
    """Return how often the mean credit orders two actions of a state rightly."""
    shares = []
    for state in range(int(turns.state_P.max()) + 1):
        at = np.flatnonzero((turns.state_P == state) & seen_P)
        true = turns.advantage_P[at, None] - turns.advantage_P[None, at]
        given = mean_P[at, None] - mean_P[None, at]
        given[np.abs(given) < _ZERO * (1.0 + np.abs(mean_P[at, None]))] = 0.0
        better = true > _ZERO
        if better.any():
            shares.append(float((0.5 + 0.5 * np.sign(given))[better].mean()))
    return float(np.mean(shares)) if shares else np.nan


def _signal(credit_N: FloatArray, turns: Turns) -> float:
    """Return the signal-to-noise ratio of the groups' gradients, per turn."""
    groups, pairs = int(turns.group_N.max()) + 1, len(turns.state_P)
    if groups < 2:
        return np.nan
    gradient_GP = np.zeros((groups, pairs))
    np.add.at(gradient_GP, (turns.group_N, turns.pair_N), credit_N)
    # The score of (s, a) is 1 there, less pi(b | s) at every action b of s.
    states = int(turns.state_P.max()) + 1
    sum_GS = np.zeros((groups, states))
    np.add.at(sum_GS, (turns.group_N, turns.state_P[turns.pair_N]), credit_N)
    gradient_GP -= sum_GS[:, turns.state_P] * turns.chance_P
    gradient_GP *= groups / turns.episodes
    variance = float(gradient_GP.var(axis=0, ddof=1).sum())
    # The squared length of a mean is too large by its variance.
    squared = float((gradient_GP.mean(axis=0) ** 2).sum()) - variance / groups
    turns_each = len(credit_N) / groups
    return max(squared, 0.0) / (variance * turns_each) if variance else np.nan


def table_of_turns(
    mdp: Mdp,
    episodes: Sequence[Trajectory],
    exact: Exact,
    policy: Mapping[State, Mapping[str, float]],
) -> Turns:
    """Return the turns of episodes of one task beside the truth.

    Args:
        mdp: the task.
        episodes: of it; what was observed names the state.
        exact: values of the policy.
        policy: probability of each action of each state.
    """
    states = {f"{mdp.name}: {mdp.text(state)}": state for state in exact.value}
    names = list(exact.value)
    pairs = list(exact.q)
    number = {pair: p for p, pair in enumerate(pairs)}
    group = {g: i for i, g in enumerate(dict.fromkeys(t.group for t in episodes))}
    done = [(t, turn) for t in episodes for turn in t.turns]
    return Turns(
        pair_N=np.array([number[states[turn.observation], turn.action] for _, turn in done]),
        group_N=np.array([group[t.group] for t, _ in done]),
        state_P=np.array([names.index(state) for state, _ in pairs]),
        chance_P=np.array([policy[state][action] for state, action in pairs]),
        visits_P=np.array([exact.visits[state] for state, _ in pairs]),
        advantage_P=np.array([exact.advantage(*pair) for pair in pairs]),
        episodes=len(episodes),
    )


# -- with a small policy --------------------------------------------------------------------------


def measure(
    names: Sequence[str], groups: int = 32, group_size: int = 8, seed: int = 0
) -> tuple[dict[tuple[str, str], Agreement], dict[str, float], dict[str, str]]:
    """Score episodes of a small policy by methods; learned models are fitted to other episodes.

    Args:
        names: of the methods.
        groups: of each task.
        group_size: episodes of a group.
        seed: of the policy, the episodes and the models.

    Returns:
        Agreement by (method, task), CPU seconds by method, and why a method scores nothing.
    """
    from creditrl.agents.transformers import TransformersAgent
    from creditrl.trainers.config import RolloutConfig
    from creditrl.trainers.side_by_side import credit_side_by_side

    policy = small_policy(seed)
    agent = TransformersAgent(
        policy.model, policy.tokenizer, max_new_tokens=16, actions="choice", seed=seed
    )
    episodes = _play(agent, groups, group_size, seed)
    others = _play(agent, groups, group_size, seed + 1)
    found: dict[tuple[str, str], Agreement] = {}
    seconds: dict[str, float] = {}
    unscored: dict[str, str] = {}
    truths = []
    for number, mdp in enumerate(MDPS):
        table = probabilities(mdp, agent)
        mine = [t for t in episodes if t.policy_version == number]
        truths.append(table_of_turns(mdp, mine, solve(mdp, table.__getitem__), table))
    ends = np.cumsum([len(truth.pair_N) for truth in truths])
    rollout = RolloutConfig(
        groups=groups, group_size=group_size, form="plain", actions="choice", reward="success"
    )
    for name in names:
        begin = time.process_time()
        try:
            _, credits = credit_side_by_side(
                {name: bench_method(name)}, episodes, policy, rollout, fit_on=others, seed=seed
            )
        except CreditRLError as error:
            unscored[name] = " ".join(str(error).split())
            continue
        seconds[name] = time.process_time() - begin
        for mdp, truth, part in zip(MDPS, truths, np.split(credits[name], ends[:-1]), strict=True):
            found[name, mdp.name] = agreement(part, truth)
    return found, seconds, unscored


def probabilities(mdp: Mdp, agent: TransformersAgent) -> dict[State, dict[str, float]]:
    """Return what a small policy does in each state: every action scored by itself, as a whole."""
    import torch

    states = list(solve(mdp, lambda state: dict.fromkeys(mdp.actions(state), 0.0)).value)
    prompts = [
        Prompt(f"{mdp.name}: {mdp.text(state)}", copy, choices=mdp.actions(state))
        for copy, state in enumerate(states)
    ]
    found = {}
    for state, reply in zip(states, agent.variant(seed=0).act(prompts), strict=True):
        assert reply.options is not None
        scores = []
        for ids in reply.options.ids:
            row = torch.tensor([reply.prompt_ids + ids])
            with torch.no_grad():
                logits = agent.model(input_ids=row).logits[0, len(reply.prompt_ids) - 1 : -1]
            logp = torch.log_softmax(logits.double() / agent.temperature, dim=-1)
            scores.append(float(logp.gather(1, torch.tensor(ids)[:, None]).sum()))
        chance = np.exp(np.array(scores) - max(scores))
        found[state] = dict(zip(mdp.actions(state), (chance / chance.sum()).tolist(), strict=True))
    return found


def small_policy(seed: int) -> Policy:
    """Return a policy that was never trained; its actions have unequal probabilities."""
    import torch

    from creditrl.trainers.models.configs import SmallPolicyConfig
    from creditrl.trainers.models.policy import Policy
    from creditrl.trainers.models.tokenizer import build_tokenizer

    words = [
        text
        for mdp in MDPS
        for state in solve(mdp, lambda s, mdp=mdp: dict.fromkeys(mdp.actions(s), 0.0)).value  # type: ignore[misc]
        for text in (f"{mdp.name}: {mdp.text(state)}", *mdp.actions(state))
    ]
    policy = Policy.small(
        SmallPolicyConfig(hidden=32, heads=2, layers=1), build_tokenizer(words), seed=seed
    )
    with torch.no_grad():
        for value in policy.base.parameters():
            value.mul_(1.5)
    return policy


def _play(agent: TransformersAgent, groups: int, group_size: int, seed: int) -> list[Trajectory]:
    """Return the episodes of all tasks, each a batch of its own."""
    made: Any = gym.make_vec(ENV_ID, num_envs=groups * group_size, group_size=group_size)
    venv = made.unwrapped
    episodes = []
    try:
        for number in range(len(MDPS)):
            agent.reseed(1000 * seed + number)
            played = run_episodes(
                venv,
                agent,
                get_form("plain"),
                seed=[(seed * len(MDPS) + number) * groups + g for g in range(groups)],
                tasks=[number] * groups,
                hash_states="state",
                segments=True,
                expert_actions=True,
                policy_version=number,
                label=f"{seed}/{number}",
            )
            episodes += [replace(t, group=t.group + number * groups) for t in played]
    finally:
        venv.close()
    return episodes
