"""Snapshot, restore and state keys through any stack of wrappers.

Gymnasium's wrappers forward no attributes, so the public form walks the chain: the environment's own
state, the state of every wrapper of ours (``wrapper_state`` and ``set_wrapper_state``) and of
Gymnasium's wrappers that have some. A wrapper that may have state and that we do not know is named.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gymnasium as gym

from creditrl.envs.base import TextEnv
from creditrl.errors import SnapshotError
from creditrl.types import Snapshot, StateSource

__all__ = ["expert_action", "hash_state", "restore", "segment_key", "snapshot", "state_key"]

# Attributes that decide what Gymnasium's wrappers do next, by class name. An empty tuple: no state.
_GYMNASIUM_STATE: dict[str, tuple[str, ...]] = {
    "Autoreset": ("autoreset",),
    "ClipAction": (),
    "ClipReward": (),
    "DelayObservation": ("observation_queue",),
    "DtypeObservation": (),
    "FilterObservation": (),
    "FlattenObservation": (),
    "FrameStackObservation": ("obs_queue",),
    "GrayscaleObservation": (),
    "HumanRendering": (),
    "MaxAndSkipObservation": (),
    "NormalizeObservation": ("obs_rms",),
    "NormalizeReward": ("return_rms", "discounted_reward"),
    "OrderEnforcing": ("_has_reset",),
    "PassiveEnvChecker": (),
    "RecordEpisodeStatistics": ("episode_returns", "episode_lengths", "episode_start_time"),
    "RenderCollection": ("frame_list",),
    "RescaleAction": (),
    "RescaleObservation": (),
    "ReshapeObservation": (),
    "ResizeObservation": (),
    "StickyAction": ("last_action", "is_sticky_actions", "num_repeats_left", "repeats_taken"),
    "TimeAwareObservation": ("timesteps",),
    "TimeLimit": ("_elapsed_steps",),
    "TransformAction": (),
    "TransformObservation": (),
    "TransformReward": (),
}
_BASE_ATTRIBUTES = frozenset(
    {
        "env",
        "_action_space",
        "_observation_space",
        "_metadata",
        "_cached_spec",
        "_saved_kwargs",
        "_np_random",
        "_np_random_seed",
        "class_name",
    }
)


def snapshot(env: gym.Env[Any, Any]) -> Snapshot:
    """Return everything that ``env``, its wrappers included, needs to continue from here.

    Raises:
        SnapshotError: the environment is not one of ours, or a wrapper's state is unknown.
    """
    states = tuple((type(w).__name__, _save(w)) for w in _wrappers(env))
    return replace(_inner(env).snapshot(), wrappers=states)


def restore(env: gym.Env[Any, Any], snap: Snapshot) -> tuple[Any, dict[str, Any]]:
    """Continue ``env`` from ``snap``; returns the bare environment's observation and info.

    Raises:
        SnapshotError: the snapshot is of another environment, version or stack of wrappers.
    """
    chain = list(_wrappers(env))
    found, expected = [type(w).__name__ for w in chain], [name for name, _ in snap.wrappers]
    if found != expected:
        raise SnapshotError(
            f"The snapshot was taken under wrappers {expected}, this environment has {found}: "
            "restore it under the same stack."
        )
    result = _inner(env).restore(snap)
    for wrapper, (_, state) in zip(chain, snap.wrappers, strict=True):
        _load(wrapper, state)
    return result


def state_key(env: gym.Env[Any, Any], source: StateSource = "state") -> bytes:
    """Return canonical bytes of the state below all wrappers; equal keys mean equal states."""
    return _inner(env).state_key(source)


def expert_action(env: gym.Env[Any, Any]) -> str | None:
    """Return an expert's next action, or None where there is none."""
    return _inner(env).expert_action()


def segment_key(env: gym.Env[Any, Any]) -> str:
    """Name the sub-goal that the last action served."""
    return _inner(env).segment_key()


def hash_state(key: bytes) -> int:
    """Return a 63-bit number of a state key (blake2b): equal in every process and on every machine."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 1


def _inner(env: gym.Env[Any, Any]) -> TextEnv[Any]:
    inner = env.unwrapped
    if not isinstance(inner, TextEnv):
        raise SnapshotError(
            f"{type(inner).__name__} has no snapshots: expected an environment of CreditRL "
            "(see `creditrl envs`)."
        )
    return inner


def _wrappers(env: gym.Env[Any, Any]) -> Iterator[gym.Wrapper[Any, Any, Any, Any]]:
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


def _names(wrapper: gym.Wrapper[Any, Any, Any, Any]) -> tuple[str, ...]:
    """Return the attributes to save of a wrapper that is not ours."""
    if type(wrapper).__module__.startswith("gymnasium."):
        for cls in type(wrapper).__mro__:
            if cls.__name__ in _GYMNASIUM_STATE:
                return _GYMNASIUM_STATE[cls.__name__]
    given = getattr(wrapper, "_saved_kwargs", {})
    own = {name for name in vars(wrapper) if name not in _BASE_ATTRIBUTES and name not in given}
    if own:
        raise SnapshotError(
            f"The wrapper {type(wrapper).__name__} may have state ({', '.join(sorted(own))}) that "
            "snapshots do not know. Give it wrapper_state() and set_wrapper_state(state), or take "
            "the snapshot below it (env.env)."
        )
    return ()


def _save(wrapper: gym.Wrapper[Any, Any, Any, Any]) -> Any:
    if "wrapper_state" in dir(type(wrapper)):
        return wrapper.wrapper_state()  # type: ignore[attr-defined]
    return {name: copy.deepcopy(vars(wrapper).get(name)) for name in _names(wrapper)}


def _load(wrapper: gym.Wrapper[Any, Any, Any, Any], state: Any) -> None:
    if "wrapper_state" in dir(type(wrapper)):
        wrapper.set_wrapper_state(state)  # type: ignore[attr-defined]
        return
    for name, value in state.items():
        setattr(wrapper, name, copy.deepcopy(value))
