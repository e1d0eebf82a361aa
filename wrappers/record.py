"""Finished episodes as records, ready for a store or a credit method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import gymnasium as gym
from gymnasium.vector import VectorEnv

from creditrl.envs.base import TextEnv, object_column
from creditrl.envs.spaces import action_text
from creditrl.envs.vector import TextVectorEnv
from creditrl.errors import WrapperError
from creditrl.types import IntArray, Task, Trajectory, Turn
from creditrl.wrappers.base import TextWrapper, VectorTextWrapper, below, text_of

__all__ = ["RecordTrajectory", "VectorRecordTrajectory"]

Writer = Callable[[Trajectory], Any]


@dataclass(frozen=True, slots=True)
class Draft:
    """An episode under way; immutable, so a snapshot shares it."""

    task: Task
    seed: int
    group: int
    member: int
    observation: str
    """Current observation."""
    state: int
    """``info["state_hash"]`` of now; 0 where no StateHash stands inside."""
    turns: tuple[Turn, ...] = ()


class RecordTrajectory(TextWrapper):
    """Collect a :class:`creditrl.types.Trajectory` of every finished episode.

    Outermost is best: it records what the agent saw at this place in the stack (a prompt, where
    ``History`` stands inside), its whole reply (where ``ReActAction`` stands inside), and
    ``state_hash`` (where ``StateHash`` does). An episode that is reset before its end is dropped.

    Args:
        env: an environment of ours.
        writer: called with each finished trajectory, e.g. ``store.append``.
        keep: whether :attr:`trajectories` keeps them.
        label: first part of their ids.

    Raises:
        WrapperError: the environment is not one of ours.
    """

    kind: ClassVar[str] = "RecordTrajectory"

    def __init__(
        self,
        env: gym.Env[Any, Any],
        writer: Writer | None = None,
        keep: bool = True,
        label: str = "episode",
    ) -> None:
        if not isinstance(env.unwrapped, TextEnv):
            raise WrapperError(_not_ours(env))
        _check_order(env)
        super().__init__(env, writer=writer, keep=keep, label=label)
        self.trajectories: list[Trajectory] = []
        """Finished episodes, oldest first."""
        self._sink = _Sink(self.trajectories, writer, keep, label, env.unwrapped.env_id)
        self._begun = 0
        self._draft: Draft | None = None
        self._action = ""

    def pop(self) -> list[Trajectory]:
        """Return the finished episodes and forget them."""
        finished = list(self.trajectories)
        self.trajectories.clear()
        return finished

    def wrapper_state(self) -> Any:
        """Return the episode under way."""
        return self._draft

    def set_wrapper_state(self, state: Any) -> None:
        """Go on with an episode."""
        self._draft = state

    def _begin(self, observation: Any, info: dict[str, Any]) -> None:
        inner = self.unwrapped
        assert isinstance(inner, TextEnv)
        self._draft = Draft(
            task=inner.task,
            seed=int(inner.copies.seed[0]),
            group=self._begun,
            member=0,
            observation=text_of(observation),
            state=int(info.get("state_hash", 0)),
        )
        self._begun += 1

    def _after(
        self,
        observation: Any,
        info: dict[str, Any],
        reward: float,
        terminated: bool,
        truncated: bool,
    ) -> None:
        if self._draft is None:
            return
        seen = text_of(observation)
        self._draft = _with_turn(self._draft, seen, info, reward, self._action)
        if terminated or truncated:
            self._sink.finish(self._draft, info, terminated, truncated)
            self._draft = None

    def _inward(self, action: Any) -> Any:
        self._action = action_text(action)
        return action


_ROW_KEYS = (
    "action",
    "error",
    "grounded",
    "reply",
    "score",
    "state_hash",
    "success",
    "ungrounded_reason",
)


class VectorRecordTrajectory(VectorTextWrapper):
    """Collect the episodes of all copies; see :class:`RecordTrajectory`.

    Members of a group carry the same ``group`` number in the same episode. With partial steps and
    clones, a clone's record begins with what its source had done.
    """

    kind: ClassVar[str] = "RecordTrajectory"

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        writer: Writer | None = None,
        keep: bool = True,
        label: str = "episode",
    ) -> None:
        inner = env.unwrapped
        if not isinstance(inner, TextVectorEnv):
            raise WrapperError(_not_ours(env))
        _check_order(env)
        super().__init__(env, writer=writer, keep=keep, label=label)
        self.trajectories: list[Trajectory] = []
        """Finished episodes, in the order in which they finished."""
        self._sink = _Sink(self.trajectories, writer, keep, label, inner.env_class.env_id)
        self._inner = inner
        self._draft = object_column([None] * env.num_envs)
        self._actions = object_column([""] * env.num_envs)

    def pop(self) -> list[Trajectory]:
        """Return the finished episodes and forget them."""
        finished = list(self.trajectories)
        self.trajectories.clear()
        return finished

    def wrapper_state(self, indices: IntArray) -> list[Any]:
        """Return (over, the episode under way) per copy."""
        return list(zip(self._over[indices].tolist(), self._draft[indices].tolist(), strict=True))

    def set_wrapper_state(self, indices: IntArray, states: Sequence[Any]) -> None:
        """Go on with episodes."""
        for i, (over, draft) in zip(indices.tolist(), states, strict=True):
            self._over[i], self._draft[i] = over, draft

    def _begin(self, index_K: IntArray, observation: Any, info: Mapping[str, Any]) -> None:
        tasks = self._inner.current_tasks()
        seeds, numbers = self._inner.episode_seeds, self._inner.episode_numbers
        size, groups = self._inner.group_size, self._inner.num_groups
        texts = _texts(observation)
        states = info["state_hash"].tolist() if "state_hash" in info else [0] * len(index_K)
        for i, text, state in zip(index_K.tolist(), texts, states, strict=True):
            self._draft[i] = Draft(
                task=tasks[i],
                seed=int(seeds[i]),
                group=int(numbers[i]) * groups + i // size,
                member=i % size,
                observation=text,
                state=state,
            )

    def _after(
        self,
        index_K: IntArray,
        observation: Any,
        info: Mapping[str, Any],
        reward_K: Any,
        terminated_K: Any,
        truncated_K: Any,
    ) -> None:
        present = {key: info[key].tolist() for key in _ROW_KEYS if key in info}
        rows = [{key: column[k] for key, column in present.items()} for k in range(len(index_K))]
        for k, (i, text, row) in enumerate(
            zip(index_K.tolist(), _texts(observation), rows, strict=True)
        ):
            draft = self._draft[i]
            if draft is None:
                continue
            draft = _with_turn(draft, text, row, float(reward_K[k]), self._actions[i])
            terminated, truncated = bool(terminated_K[k]), bool(truncated_K[k])
            if terminated or truncated:
                self._sink.finish(draft, row, terminated, truncated)
                draft = None
            self._draft[i] = draft

    def _inward(self, index_K: IntArray, actions: Sequence[Any]) -> Sequence[Any]:
        self._actions[index_K] = object_column([action_text(action) for action in actions])
        return actions


@dataclass(slots=True)
class _Sink:
    """Where finished episodes go."""

    trajectories: list[Trajectory]
    writer: Writer | None
    keep: bool
    label: str
    env_id: str
    count: int = 0

    def finish(
        self, draft: Draft, info: Mapping[str, Any], terminated: bool, truncated: bool
    ) -> None:
        trajectory = Trajectory(
            id=f"{self.label}/{self.count}",
            env_id=self.env_id,
            task=draft.task,
            group=draft.group,
            member=draft.member,
            seed=draft.seed,
            turns=draft.turns,
            success=bool(info.get("success", False)),
            score=float(info.get("score", 0.0)),
            terminated=terminated,
            truncated=truncated,
            final_observation=draft.observation,
            error=str(info.get("error", "")),
        )
        self.count += 1
        if self.keep:
            self.trajectories.append(trajectory)
        if self.writer is not None:
            self.writer(trajectory)


def _with_turn(
    draft: Draft, seen: str, info: Mapping[str, Any], reward: float, passed: str
) -> Draft:
    turn = Turn(
        observation=draft.observation,
        reply=str(info.get("reply", passed)),
        action=str(info.get("action", passed)),
        reward=reward,
        grounded=bool(info.get("grounded", True)),
        ungrounded_reason=str(info.get("ungrounded_reason", "")),
        state=draft.state,
        score=float(info.get("score", 0.0)),
    )
    state = int(info.get("state_hash", 0))
    return replace(draft, observation=seen, state=state, turns=(*draft.turns, turn))


def _texts(observation: Any) -> Sequence[str]:
    if isinstance(observation, dict):
        return [
            text_of(one) for one in observation["text" if "text" in observation else "messages"]
        ]
    if isinstance(observation, tuple):
        return [text_of(one) for one in observation]
    return [""] * len(observation)


def _not_ours(env: Any) -> str:
    return (
        "RecordTrajectory needs an environment of CreditRL, which knows its task and seed; found "
        f"{type(env.unwrapped).__name__}."
    )


def _check_order(env: Any) -> None:
    for wrapper in below(env):
        if getattr(wrapper, "kind", "") == "RecordTrajectory":
            raise WrapperError("A RecordTrajectory stands inside already: every episode once.")
