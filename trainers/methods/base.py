"""What a credit method is, and the registry that finds it by name.

A method composes four choices: how to collect, which turn rewards, which advantage, which policy
loss; and names the learned models that it fits. The training loop asks it and has no branch on its
name.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np

from creditrl.errors import ConfigError, UnknownNameError, did_you_mean
from creditrl.trainers.credit.penalty import ungrounded_penalty
from creditrl.types import Credit, FloatArray, StateSource, TokenTable, Trajectory, TurnTable

if TYPE_CHECKING:
    from creditrl.envs.base import TextEnv
    from creditrl.trainers.collect.base import Collector, Gear
    from creditrl.trainers.losses.policy import PolicyLossConfig
    from creditrl.trainers.models.base import LearnedModel
    from creditrl.trainers.models.policy import Policy

__all__ = [
    "Collection",
    "ExploreConfig",
    "Method",
    "MethodInfo",
    "check_penalty_order",
    "credit_of_parts",
    "list_methods",
    "load_plugin",
    "method_info",
    "register_method",
]

Collection = Literal["groups", "independent", "demonstrations"]
Granularity = Literal["token", "turn", "segment", "trajectory"]


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
class ExploreConfig:
    """Episodes of the cloned policy that learned models are fitted to before training."""

    tasks: int = 256
    """Tasks that are explored, drawn from the training split; all of them where there are fewer."""
    rollouts: int = 10
    """Episodes per task (SPA and HISR: 10)."""
    temperature: float = 0.7
    """Of their sampling (SPA and HISR: 0.7)."""
    drop_malformed: bool = False
    """Leave out episodes in which some reply has not the form that was asked for, or is no action
    (HISR)."""
    drop_repeats: int | None = None
    """Leave out episodes in which one action is taken before one observation more often than this
    (HISR; its number is inferred); None: none."""

    def __post_init__(self) -> None:
        if self.drop_repeats is not None and self.drop_repeats < 1:
            raise ConfigError(
                f"ExploreConfig.drop_repeats is {self.drop_repeats}: expected at least 1, or None."
            )
        if self.tasks < 1 or self.rollouts < 1 or not self.temperature > 0:
            raise ConfigError(
                f"ExploreConfig: tasks={self.tasks}, rollouts={self.rollouts}, "
                f"temperature={self.temperature}: expected at least 1, at least 1 and above 0."
            )


ConfigT = TypeVar("ConfigT")


class Method(Generic[ConfigT]):
    """Base of every method; its config is a frozen dataclass that holds the paper's numbers."""

    name: ClassVar[str]
    collection: ClassVar[Collection] = "groups"
    """How its trajectories come about."""
    needs_reference: ClassVar[bool] = False
    """Whether the credit reads the reference policy's log-probabilities (``ref_logprob_M``)."""
    binary_outcomes: ClassVar[bool] = False
    """Whether it takes outcomes of 0 and 1 alone; ``rollout.reward = "success"`` gives such."""
    expert_actions: ClassVar[bool] = False
    """Whether turns must say what the environment's expert would have done."""
    own_rewards: ClassVar[bool] = False
    """Whether turns come with rewards of the method's own; a recipe's reward settings do not touch
    these."""

    def __init__(self, config: ConfigT) -> None:
        self.config = config

    @property
    def hash_states(self) -> StateSource | None:
        """Source of the state hash that the method compares turns by; None where it needs none."""
        return None

    @property
    def segments(self) -> bool:
        """Whether turns must say which sub-goal they served."""
        return False

    @property
    def explore(self) -> ExploreConfig | None:
        """The exploration before training that the learned models are fitted to; None: none."""
        return None

    @property
    def policy_waits(self) -> int:
        """Updates at the beginning in which the models learn and the policy stays as it is."""
        return 0

    def check_environment(self, env_class: type[TextEnv[Any]]) -> None:
        """Raise for an environment on which the method says nothing; most are defined on all.

        Raises:
            ConfigError: says why, and what to use instead.
        """

    def collector(self, gear: Gear) -> Collector:
        """Return how trajectories are collected: groups or independent episodes, as the class says.

        A method that collects in another way (a tree, resampled groups) returns its own collector,
        or one around ``super().collector(gear)``.
        """
        from creditrl.trainers.collect.rollouts import RolloutCollector

        collector = RolloutCollector.of(gear, grouped=self.collection == "groups")
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

    def build_models(
        self, policy: Policy, seed: int, temperature: float = 1.0
    ) -> Sequence[LearnedModel]:
        """Return the models that the method fits; none for most.

        Args:
            policy: as it stands when training begins.
            seed: the run's.
            temperature: of the sampler.
        """
        return ()


_METHODS: dict[str, MethodInfo] = {}
_OWN = (
    "sft",
    "pg",
    "ppo",
    "grpo",
    "dr_grpo",
    "rloo",
    "reinforce_pp",
    "dapo",
    "gspo",
    "gigpo",
    "hgpo",
    "ragen",
    "three_spo",
    "istar",
    "prime",
    "dpo",
    "rft",
    "spa",
    "prm4a",
    "hisr",
    "stepagent",
    "archer",
)
"""Modules of this folder that register a method."""


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
    for module in _OWN:
        importlib.import_module(f"creditrl.trainers.methods.{module}")


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


def load_plugin(where: str) -> None:
    """Import a module (``package.module``) or a file (``path/method.py``) that registers methods.

    Raises:
        ConfigError: there is no such module or file.
    """
    if not where.endswith(".py"):
        try:
            importlib.import_module(where)
        except ModuleNotFoundError as error:
            raise ConfigError(f"Plugin {where!r} cannot be imported: {error}.") from error
        return
    path = Path(where).expanduser()
    if not path.is_file():
        raise ConfigError(f"Plugin file {where!r} does not exist.")
    spec = importlib.util.spec_from_file_location(f"creditrl_plugin_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)


def check_penalty_order(config: Any) -> None:
    """Raise unless a config's ``penalty_order`` is "after" or "before".

    Raises:
        ConfigError: names the config and what is known.
    """
    if config.penalty_order not in ("after", "before"):
        raise ConfigError(
            f"{type(config).__name__}.penalty_order is {config.penalty_order!r}. "
            "Known: after, before."
        )


def credit_of_parts(
    method: str, turns: TurnTable, invalid_penalty: float, **parts: FloatArray
) -> Credit:
    """Return the credit whose turn advantage is the sum of named parts and the grounding penalty.

    Args:
        method: name to stamp.
        turns: flat table of N turns.
        invalid_penalty: see :func:`creditrl.trainers.credit.penalty.ungrounded_penalty`.
        parts: addends of N values each.
    """
    named = {**parts, "penalty": ungrounded_penalty(turns.grounded_N, invalid_penalty)}
    advantage_N: FloatArray = np.zeros(len(turns), dtype=np.float32)
    for part in named.values():
        advantage_N = advantage_N + part
    return Credit(method, advantage_N=advantage_N, parts=named)
