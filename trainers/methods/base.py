"""The credit method interface, and the registry that finds methods by name.

A method composes four choices (how to collect, which turn rewards, which advantage, which policy
loss) and names the learned models that it fits. The training loop asks the method and never
branches on its name.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from creditrl.checked import Checked, Count, Positive
from creditrl.envs.base import TextEnv
from creditrl.errors import ConfigError, UnknownNameError, did_you_mean, kind_of
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
    "checked_credit",
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
"""PPO's: clip 0.2 at token level, with equal weight for every token of the batch."""
GRPO_LOSS = replace(PPO_LOSS, aggregate="seq-mean-token-mean")
"""GRPO's: PPO's, with equal weight for every sequence."""
DAPO_LOSS = replace(PPO_LOSS, clip_high=0.28)
"""DAPO's: PPO's, with a higher upper bound."""
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
    """The finest unit that gets its own credit."""
    reward_source: str
    paper: str


@dataclass(frozen=True, slots=True)
class ExploreConfig(Checked):
    """Episodes of the cloned policy to which learned models are fitted before training."""

    tasks: Count = 256
    """Tasks to explore, drawn from the training split; all of them if there are fewer."""
    rollouts: Count = 10
    """Episodes per task (SPA and HISR: 10)."""
    temperature: Positive = 0.7
    """Sampling temperature (SPA and HISR: 0.7)."""
    drop_malformed: bool = False
    """Leave out episodes in which a reply does not have the required form, or is not an action
    (HISR)."""
    drop_repeats: Count | None = None
    """Leave out episodes in which the same action is taken at the same observation more often than
    this (HISR; its number is inferred); None: keep all."""


ConfigT = TypeVar("ConfigT")


class Method(Generic[ConfigT]):
    """Base of every method; its config is a frozen dataclass that holds the paper's numbers."""

    name: ClassVar[str]
    collection: ClassVar[Collection] = "groups"
    """How its trajectories are collected."""
    needs_reference: ClassVar[bool] = False
    """Whether the credit reads the reference policy's log-probabilities (``ref_logprob_M``)."""
    reads_logprobs: ClassVar[bool] = False
    """Whether the credit or a learned model reads the policy's log-probabilities before the update
    (``old_logprob_M``)."""
    binary_outcomes: ClassVar[bool] = False
    """Whether outcomes must be 0 or 1; ``rollout.reward = "success"`` makes them so."""
    expert_actions: ClassVar[bool] = False
    """Whether turns must record the environment expert's action."""
    plays_on: ClassVar[bool] = False
    """Whether its collector plays on from restored states, and the credit uses those continuations;
    episodes of another collector are credited as a group without continuations."""
    segments: ClassVar[bool] = False
    """Whether turns must record which sub-goal they served."""
    own_rewards: ClassVar[bool] = False
    """Whether the method itself sets the rewards of turns; a recipe's reward settings do not
    apply."""
    space: ClassVar[Space] = COMMON
    """Search space when it is compared with others: optimizer settings, and two or three of the
    method's own numbers."""

    def __init__(self, config: ConfigT) -> None:
        if getattr(getattr(config, "gae", None), "at_limit", "end") != "end":
            raise ConfigError(
                f'method.gae.at_limit="bootstrap": {self.name} computes no value after an '
                'episode\'s last turn. Use "end", as the papers do.'
            )
        self.config = config

    @property
    def hash_states(self) -> StateSource | None:
        """Source of the state hash by which the method compares turns; None if it needs none.

        The config's field ``anchor``, if it has one.
        """
        return getattr(self.config, "anchor", None)

    @property
    def explore(self) -> ExploreConfig | None:
        """The exploration before training to which the learned models are fitted; None: none.

        The config's field ``exploration``, if it has one.
        """
        return getattr(self.config, "exploration", None)

    @property
    def policy_waits(self) -> int:
        """Number of first updates in which the models learn and the policy stays fixed.

        The longer warm-up of the config's fields ``warmup`` and ``critic``, if it has them.
        """
        critic = getattr(getattr(self.config, "critic", None), "warmup", 0)
        return max(int(getattr(self.config, "warmup", 0)), int(critic))

    def check_environment(self, env_class: type[TextEnv[Any]]) -> None:
        """Raise for an environment on which the method is undefined; most work on all.

        Raises:
            ConfigError: with the reason, and what to use instead.
        """

    def collector(self, context: CollectContext) -> Collector:
        """Return the collector: of groups or independent episodes, as the class says.

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

        For methods with :attr:`own_rewards`, when another method collected the episodes.

        Args:
            turns: of these episodes, with ``state_N`` if the method compares states.
            trajectories: finished episodes with turns.
            known: earlier episodes.

        Raises:
            ConfigError: the method's rewards cannot be computed from finished episodes.
        """
        if self.own_rewards:
            raise ConfigError(
                f"{self.name} has rewards of its own, which episodes that other methods collected "
                "do not hold: its class must define replay()."
            )
        return turns

    def credit(self, turns: TurnTable, tokens: TokenTable) -> Credit:
        """Return the credit of every turn or token of the batch."""
        raise ConfigError(f"The method {self.name!r} does not define credit(turns, tokens).")

    def policy_loss(self) -> PolicyLossConfig:
        """Return the policy loss that uses the advantages: the config's field ``loss``."""
        return self.config.loss  # type: ignore[attr-defined, no-any-return]

    def build_models(self, policy: Policy, seed: int, temperature: float = 1.0) -> Models:
        """Return the models that the method fits; most methods have none.

        Args:
            policy: as it is when training starts.
            seed: the run's.
            temperature: of the sampler.
        """
        return ()


class CriticMethod(Method[ConfigT]):
    """A method with a critic of reply tokens, configured by the config's field ``critic``."""

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


def checked_credit(method: Method[Any], turns: TurnTable, tokens: TokenTable) -> Credit:
    """Return a method's credit of a batch, if it fits the batch.

    Raises:
        ConfigError: the method returned something else, or columns of another length.
    """
    credit = method.credit(turns, tokens)
    if not isinstance(credit, Credit):
        found = "None" if credit is None else kind_of(credit)
        raise ConfigError(
            f"credit() of the method {method.name!r} returned {found}: expected a Credit."
        )
    for name in ("advantage", "weight", "value_target"):
        for suffix, rows in (("N", len(turns)), ("M", len(tokens))):
            column = getattr(credit, f"{name}_{suffix}", None)
            if column is not None and np.shape(column) != (rows,):
                raise ConfigError(
                    f"credit() of the method {method.name!r} returned {name}_{suffix} of shape "
                    f"{np.shape(column)}: expected ({rows},), one per "
                    f"{'turn' if suffix == 'N' else 'reply token'}."
                )
    return credit


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
        ConfigError: another class has that name, or the config is no frozen dataclass.
    """
    params = getattr(config, "__dataclass_params__", None)
    if params is None or not params.frozen:
        raise ConfigError(
            f"{config.__name__}, the config of the method {name!r}, is not a frozen dataclass: "
            "write @dataclass(frozen=True) above it."
        )

    def add(method: type[Method[Any]]) -> type[Method[Any]]:
        known = _METHODS.get(name)
        if known is not None and known.method.__qualname__ != method.__qualname__:
            # A plugin is imported before our methods, so the second one registered can be ours.
            ours, other = __package__ or "", method
            if method.__module__.startswith(ours):
                known, other = replace(known, method=method), known.method
            owner = "CreditRL" if known.method.__module__.startswith(ours) else _file(known.method)
            raise ConfigError(
                f"{_file(other)} registers a method named {name!r}, which is a method of {owner}: "
                "choose another name."
            )
        method.name = name
        _METHODS[name] = MethodInfo(name, config, method, kind, granularity, reward_source, paper)
        return method

    return add


def _file(method: type[Any]) -> str:
    return getattr(sys.modules.get(method.__module__), "__file__", None) or method.__module__


def _load_own() -> None:
    """Import the modules next to this file, and those of installed packages."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{__package__}.{module.name}")
    load_installed("creditrl.methods")


def list_methods() -> list[MethodInfo]:
    """Return every registered method, sorted by name."""
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
    """Return each turn's episode outcome: 1 on success, else 0; or the environment's score."""
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
        method: name to record in the credit.
        turns: flat table of N turns.
        invalid_penalty: see :func:`creditrl.trainers.credit.penalty.ungrounded_penalty`. It affects
            only that turn, whereas a reward would spread to others.
        tokens: of M tokens, for credit per token; None: credit per turn.
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
