"""Share of the actions that could be executed, as a running figure per episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from creditrl.errors import WrapperError
from creditrl.types import IntArray
from creditrl.wrappers.base import TextWrapper, VectorTextWrapper

__all__ = ["Grounding", "VectorGrounding"]


class Grounding(TextWrapper):
    """Add the share of executed actions in the episode so far.

    ``info["grounding_accuracy"]``: float in [0, 1], 1.0 before the first action; the reset is not
    counted. ``info["ungrounded_turns"]``: int, actions that could not be executed. Penalties belong
    to the credit side.

    Raises:
        WrapperError: ``info`` has no ``"grounded"`` (not an environment of ours).

    Example:
        >>> import creditrl
        >>> env = Grounding(gym.make("CreditRL/VisualSokoban-v0"))
        >>> _, info = env.reset(seed=0)
        >>> *_, info = env.step("fly")
        >>> info["grounding_accuracy"], info["ungrounded_turns"]
        (0.0, 1)
    """

    kind: ClassVar[str] = "Grounding"

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._turns = 0
        self._count(0, 0)

    def wrapper_state(self) -> Any:
        """Return (turns, ungrounded turns)."""
        return self._turns, self._own["ungrounded_turns"]

    def set_wrapper_state(self, state: Any) -> None:
        """Take back the two counts."""
        self._count(*state)

    def _begin(self, observation: Any, info: dict[str, Any]) -> None:
        self._count(0, 0)

    def _after(
        self,
        observation: Any,
        info: dict[str, Any],
        reward: float,
        terminated: bool,
        truncated: bool,
    ) -> None:
        grounded = _signal(info)
        self._count(self._turns + 1, self._own["ungrounded_turns"] + (not grounded))

    def _count(self, turns: int, ungrounded: int) -> None:
        self._turns = turns
        self._own = {
            "grounding_accuracy": 1.0 - ungrounded / turns if turns else 1.0,
            "ungrounded_turns": ungrounded,
        }


class VectorGrounding(VectorTextWrapper):
    """Add the share of executed actions per copy; see :class:`Grounding`."""

    kind: ClassVar[str] = "Grounding"

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        n = env.num_envs
        self._turns = np.zeros(n, dtype=np.int64)
        self._own = {
            "grounding_accuracy": np.ones(n, dtype=np.float64),
            "ungrounded_turns": np.zeros(n, dtype=np.int64),
        }

    def wrapper_state(self, indices: IntArray) -> list[Any]:
        """Return (over, accuracy, ungrounded turns, turns) per copy."""
        turns_K = self._turns[indices].tolist()
        return [
            (*own, turns)
            for own, turns in zip(super().wrapper_state(indices), turns_K, strict=True)
        ]

    def set_wrapper_state(self, indices: IntArray, states: Any) -> None:
        """Take back the counts."""
        super().set_wrapper_state(indices, [state[:-1] for state in states])
        self._turns[indices] = [state[-1] for state in states]

    def _begin(self, index_K: IntArray, observation: Any, info: Mapping[str, Any]) -> None:
        self._turns[index_K] = 0
        self._own["grounding_accuracy"][index_K] = 1.0
        self._own["ungrounded_turns"][index_K] = 0

    def _after(
        self,
        index_K: IntArray,
        observation: Any,
        info: Mapping[str, Any],
        reward_K: Any,
        terminated_K: Any,
        truncated_K: Any,
    ) -> None:
        self._turns[index_K] += 1
        ungrounded = self._own["ungrounded_turns"]
        ungrounded[index_K] += ~np.asarray(_signal(info), dtype=np.bool_)
        share_K = ungrounded[index_K] / self._turns[index_K]
        self._own["grounding_accuracy"][index_K] = 1.0 - share_K


def _signal(info: Mapping[str, Any]) -> Any:
    try:
        return info["grounded"]
    except (KeyError, TypeError):
        raise WrapperError(
            "info has no 'grounded': Grounding needs an environment of CreditRL, and stands inside "
            "wrappers that take keys out of info."
        ) from None
