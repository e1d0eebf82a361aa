"""A number for the state, for methods that compare turns taken in the same state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, get_args

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from creditrl.envs.base import TextEnv
from creditrl.envs.state import hash_state, state_key
from creditrl.envs.vector import TextVectorEnv
from creditrl.errors import ConfigError, WrapperError
from creditrl.types import IntArray, StateSource
from creditrl.wrappers.base import TextWrapper, VectorTextWrapper

__all__ = ["StateHash", "VectorStateHash", "hash_state"]


class StateHash(TextWrapper):
    """Add ``info["state_hash"]``: equal numbers mean equal states (63-bit int, blake2b).

    The number is that of the state which the observation beside it shows. It is read below all
    wrappers, so the place in the stack does not matter.

    Args:
        env: an environment of ours.
        source: ``"state"``: everything that decides the future, the goal included. ``"world"``: the
            physical world, coarser. ``"text"``: the bare environment's text, as the agent sees it
            without history or prompt.

    Raises:
        WrapperError: the environment has no state keys.
        ConfigError: the source is unknown.
    """

    kind: ClassVar[str] = "StateHash"

    def __init__(self, env: gym.Env[Any, Any], source: StateSource = "state") -> None:
        _check_source(source)
        if not isinstance(env.unwrapped, TextEnv):
            raise WrapperError(_no_keys(env))
        super().__init__(env, source=source)
        self.source: StateSource = source
        self._own = {"state_hash": 0}

    def _begin(self, observation: Any, info: dict[str, Any]) -> None:
        self._own = {"state_hash": hash_state(state_key(self.env, self.source))}

    def _after(
        self,
        observation: Any,
        info: dict[str, Any],
        reward: float,
        terminated: bool,
        truncated: bool,
    ) -> None:
        self._begin(observation, info)


class VectorStateHash(VectorTextWrapper):
    """Add ``info["state_hash"]`` per copy, int64; see :class:`StateHash`.

    0 stands for a copy without a world: its worker died (``info["error"]`` says so), or, in
    ``final_info`` of same-step autoreset, its last state was replaced before anyone could look.
    """

    kind: ClassVar[str] = "StateHash"

    def __init__(self, env: VectorEnv[Any, Any, Any], source: StateSource = "state") -> None:
        _check_source(source)
        super().__init__(env, source=source)
        self.source: StateSource = source
        # Gymnasium's own vector environments reach the single ones with call().
        self._ours = isinstance(env.unwrapped, TextVectorEnv)
        if not (self._ours or hasattr(env.unwrapped, "call")):
            raise WrapperError(_no_keys(env))
        self._own = {"state_hash": np.zeros(env.num_envs, dtype=np.int64)}

    def _begin(self, index_K: IntArray, observation: Any, info: Mapping[str, Any]) -> None:
        errors_K = info["error"].tolist() if "error" in info else [""] * len(index_K)
        sound = np.array([not error for error in errors_K], dtype=np.bool_)
        hashes = self._own["state_hash"]
        hashes[index_K] = 0
        if not sound.any():
            return
        sound_K = index_K[sound]
        if self._ours:
            keys = state_key(self.env, self.source, sound_K)
        else:
            everyone = self.unwrapped.call("state_key", self.source)  # type: ignore[attr-defined]
            keys = [everyone[i] for i in sound_K.tolist()]
        hashes[sound_K] = [hash_state(key) for key in keys]

    def _after(
        self,
        index_K: IntArray,
        observation: Any,
        info: Mapping[str, Any],
        reward_K: Any,
        terminated_K: Any,
        truncated_K: Any,
    ) -> None:
        if self._mode is AutoresetMode.SAME_STEP and (terminated_K | truncated_K).any():
            self._own["state_hash"][index_K] = 0
        else:
            self._begin(index_K, observation, info)


def _check_source(source: str) -> None:
    if source not in get_args(StateSource):
        raise ConfigError(
            f"StateHash(source={source!r}) is unknown. Known: {', '.join(get_args(StateSource))}."
        )


def _no_keys(env: Any) -> str:
    return (
        f"StateHash needs an environment with state keys; {type(env.unwrapped).__name__} has none "
        "(see `creditrl envs`)."
    )
