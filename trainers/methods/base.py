"""The credit method interface, and the registry that finds methods by name.

A method composes four choices: how to collect, which turn rewards, which advantage, which policy
loss; and names the learned models that it fits. The training loop asks it and has no branch on its
name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from creditrl.checked import Checked, Count, Positive
from creditrl.envs.base import TextEnv
from creditrl.errors import ConfigError, UnknownNameError, did_you_mean
from creditrl.plugins import load_installed
from creditrl.trainers.collect.base import CollectContext, Collector
from creditrl.trainers.collect.oversample import OversampleCollector
from creditrl.trainers.collect.rollouts import RolloutCollector
from creditrl.trainers.credit.penalty import ungrounded_penalty
from creditrl.trainers.credit.spread import turns_to_tokens
from creditrl.trainers.losses.config import PolicyLossConfig
from creditrl.trainers.models.base import LearnedModel
from creditrl.trainers.models.critic import Critic
from creditrl.trainers.models.policy import Policy
from creditrl.trainers.space import COMMON, CRITIC_RATE, DISCOUNT, LAMBDA, Space
from creditrl.types import Credit, FloatArray, StateSource, TokenTable, Trajectory, TurnTable

__all__ = [
    "DAPO_LOSS",
    "GRPO_LOSS",
    "PLAIN_LOSS",
    "PPO_LOSS",
    "Collection",
    "CriticMethod",
    "ExploreConfig",
    "Method",
    "MethodInfo",
    "Models",
    "credit_of_parts",
    "list_methods",
    "method_info",
    "outcome_of_turns",
    "register_method",
]

Collection = Literal["groups", "independent", "demonstrations"]
Granularity = Literal["token", "turn", "segment", "trajectory"]
Models: TypeAlias = Sequence[LearnedModel]


PPO_LOSS = PolicyLossConfig(ratio="token", clip_low=0.2, clip_high=0.2, aggregate="token-mean")
"""PPO's: clip 0.2 at token level, every token of the batch alike."""
GRPO_LOSS = replace(PPO_LOSS, aggregate="seq-mean-token-mean")
"""GRPO's: PPO's, with every sequence alike."""
DAPO_LOSS = replace(PPO_LOSS, clip_high=0.28)
"""DAPO's: PPO's, with more room above."""
PLAIN_LOSS = PolicyLossConfig(ratio="none", aggregate="token-mean")
"""``-A log pi``, without a ratio or a clip."""


@dataclass(frozen=True, slots=True)
class MethodInfo:
    """One line of ``creditrl methods``."""

    name: str
    config: type
    method: type[Method[Any]]
    kind: str
    """Family: ``"imitation"``, ``"policy gradient"``, ``"group"``, ``"GAE"``, ..."""
    granularity: Granularity
    """The finest thing that gets a credit of its own."""
    reward_source: str
    paper: str


@dataclass(frozen=True, slots=True)
class ExploreConfig(Checked):
    """Episodes of the cloned policy that learned models are fitted to before training."""

    tasks: Count = 256
    """Tasks that are explored, drawn from the training split; all of them where there are fewer."""
    rollouts: Count = 10
    """Episodes per task (SPA and HISR: 10)."""
    temperature: Positive = 0.7
    """Of their sampling (SPA and HISR: 0.7)."""
    drop_malformed: bool = False
    """Leave out episodes in which some reply has not the form that was asked for, or is no action
    (HISR)."""
    drop_repeats: Count | None = None
    """Leave out episodes in which one action is taken before one observation more often than this
    (HISR; its number is inferred); None: none."""


ConfigT = TypeVar("ConfigT")


class Method(Generic[ConfigT]):
    """Base of every method; its config is a frozen dataclass that holds the paper's numbers."""

    name: ClassVar[str]
    collection: ClassVar[Collection] = "groups"
    """How its trajectories come about."""
    needs_reference: ClassVar[bool] = False
    """Whether the credit reads the reference policy's log-probabilities (``ref_logprob_M``)."""
    binary_outcomes: ClassVar[bool] = False
    """Whether outcomes must be 0 or 1; ``rollout.reward = "success"`` gives such."""
    expert_actions: ClassVar[bool] = False
    """Whether turns must record the environment expert's action."""
    plays_on: ClassVar[bool] = False
    """Whether its collector plays on from restored states, which the credit reads; of episodes that
    others collected it says what it says of a group that nothing was played on from."""
    segments: ClassVar[bool] = False
    """Whether turns must record which sub-goal they served."""
    own_rewards: ClassVar[bool] = False
    """Whether turns come with rewards of the method's own; a recipe's reward settings do not touch
    these."""
    space: ClassVar[Space] = COMMON
    """What is tuned when it is compared with others: of the optimizer, and two or three numbers of
    its own."""

    def __init__(self, config: ConfigT) -> None:
        self.config = config

    @property
    def hash_states(self) -> StateSource | None:
        """Source of the state hash that the method compares turns by; None where it needs none.

        The config's field ``anchor``, where it has one.
        """
        return getattr(self.config, "anchor", None)

    @property
    def explore(self) -> ExploreConfig | None:
        """The exploration before training that the learned models are fitted to; None: none.

        The config's field ``exploration``, where it has one.
        """
        return getattr(self.config, "exploration", None)

    @property
    def policy_waits(self) -> int:
        """Updates at the beginning in which the models learn and the policy stays as it is.

        The longer warm-up of the config's fields ``warmup`` and ``critic``, where it has these.
        """
        critic = getattr(getattr(self.config, "critic", None), "warmup", 0)
        return max(int(getattr(self.config, "warmup", 0)), int(critic))

    def check_environment(self, env_class: type[TextEnv[Any]]) -> None:
        """Raise for an environment on which the method says nothing; most are defined on all.

        Raises:
            ConfigError: says why, and what to use instead.
        """

    def collector(self, context: CollectContext) -> Collector:
        """Return how trajectories are collected: groups or independent episodes, as the class says.

        A method that collects in another way (a tree, resampled groups) returns its own collector,
        or one around ``super().collector(context)``.
        """
        make = OversampleCollector if context.oversample > 1 else RolloutCollector.of
        collector = make(context, grouped=self.collection == "groups")
        self.check_environment(collector.venv.env_class)
        if self.expert_actions and not collector.venv.has_expert:
            raise ConfigError(
                f"{collector.venv.env_class.env_id} has no expert, but {self.name} compares every "
                "turn with an expert's action. Give the environment's engine an expert_action(), "
                "or use a method without an expert (`creditrl methods`)."
            )
        return collector

    def replay(
        self, turns: TurnTable, trajectories: Sequence[Trajectory], known: Sequence[Trajectory]
    ) -> TurnTable:
        """Return the table of stored episodes as the method's own collector would have made it.

        For methods with :attr:`own_rewards`, whose episodes another method collected.

        Args:
            turns: of these episodes, with ``state_N`` where the method compares states.
            trajectories: finished episodes with turns.
            known: episodes of before.

        Raises:
            ConfigError: the method's rewards cannot be told from finished episodes.
        """
        if self.own_rewards:
            raise ConfigError(
                f"{self.name} has rewards of its own, which episodes that other methods collected "
                "do not hold: its class must define replay()."
            )
        return turns

    def credit(self, turns: TurnTable, tokens: TokenTable) -> Credit:
        """Return the credit of every turn or token of the batch."""
        raise NotImplementedError

    def policy_loss(self) -> PolicyLossConfig:
        """Return which policy loss the advantages go into: the config's field ``loss``."""
        return self.config.loss  # type: ignore[attr-defined, no-any-return]

    def build_models(self, policy: Policy, seed: int, temperature: float = 1.0) -> Models:
        """Return the models that the method fits; none for most.

        Args:
            policy: as it stands when training begins.
            seed: the run's.
            temperature: of the sampler.
        """
        return ()


class CriticMethod(Method[ConfigT]):
    """A method with a critic of reply tokens, as the config's field ``critic`` says."""

    collection = "independent"
    space = {
        **COMMON,
        "method.gae.gamma": DISCOUNT,
        "method.gae.lam": LAMBDA,
        "method.critic.lr": CRITIC_RATE,
    }

    def build_models(self, policy: Policy, seed: int, temperature: float = 1.0) -> Models:
        """Return the critic; a method with more models puts them before it."""
        return (Critic(policy, self.config.critic, seed=seed),)  # type: ignore[attr-defined]


_METHODS: dict[str, MethodInfo] = {}


def register_method(
    name: str,
    *,
    config: type,
    kind: str,
    granularity: Granularity,
    reward_source: str,
    paper: str,
) -> Callable[[type[Method[Any]]], type[Method[Any]]]:
    """Register a :class:`Method` subclass under ``name``; works from outside the repository too.

    Raises:
        ConfigError: another class has that name.
    """

    def add(method: type[Method[Any]]) -> type[Method[Any]]:
        known = _METHODS.get(name)
        if known is not None and known.method.__qualname__ != method.__qualname__:
            raise ConfigError(
                f"The method name {name!r} is taken by {known.method.__module__}: choose another."
            )
        method.name = name
        _METHODS[name] = MethodInfo(name, config, method, kind, granularity, reward_source, paper)
        return method

    return add


def _load_own() -> None:
    """Import what lies beside this file, and what installed packages bring."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{__package__}.{module.name}")
    load_installed("creditrl.methods")


def list_methods() -> list[MethodInfo]:
    """Return every registered method, by name."""
    _load_own()
    return [_METHODS[name] for name in sorted(_METHODS)]


def method_info(name: str) -> MethodInfo:
    """Return the method of that name.

    Raises:
        UnknownNameError: nothing is registered under it.
    """
    _load_own()
    if name not in _METHODS:
        raise UnknownNameError(
            f"No method named {name!r}.{did_you_mean(name, _METHODS)} "
            f"Known: {', '.join(sorted(_METHODS))}. List them with `creditrl methods`."
        )
    return _METHODS[name]


def outcome_of_turns(turns: TurnTable, outcome: Literal["success", "score"]) -> FloatArray:
    """Return R of each turn's episode: 1 on success, else 0; or the environment's score."""
    if outcome == "score":
        return turns.require("score_N", hint="turn tables of episodes have it")
    return turns.success_N.astype(np.float32)


def credit_of_parts(
    method: str,
    turns: TurnTable,
    invalid_penalty: float,
    tokens: TokenTable | None = None,
    **parts: FloatArray,
) -> Credit:
    """Return the credit whose advantage is the sum of named parts and the grounding penalty.

    Args:
        method: name to stamp.
        turns: flat table of N turns.
        invalid_penalty: see :func:`creditrl.trainers.credit.penalty.ungrounded_penalty`. The turn's
            own: it goes nowhere else, as a reward would.
        tokens: of M tokens, where the credit is of these; None: of turns.
        parts: addends of N values each, or M.
    """
    penalty = ungrounded_penalty(turns.grounded_N, invalid_penalty)
    if tokens is not None:
        penalty = turns_to_tokens(penalty, tokens.turn_M)
    named = {**parts, "penalty": penalty}
    advantage: FloatArray = np.zeros(len(penalty), dtype=np.float32)
    for part in named.values():
        advantage = advantage + part
    if tokens is None:
        return Credit(method, advantage_N=advantage, parts=named)
    return Credit(method, advantage_M=advantage, parts=named)
