"""A small text environment for tests: a corridor with wind, so that random numbers matter.

Registered as ``Toy/Corridor-v0`` when this module is imported.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from creditrl.envs.base import Effect, Engine, EnvParts, TextEnv, View
from creditrl.envs.tasks import TaskList
from creditrl.envs.vector import TextVectorEnv
from creditrl.errors import DataError
from creditrl.types import Task

TOY = "Toy/Corridor-v0"
MOVES = {"left": -1, "right": 1}


@dataclass(frozen=True, slots=True)
class ToyConfig:
    split: str = "train"
    max_turns: int = 12
    images: bool = False
    text: bool = True
    free_look: bool = False
    """``look`` costs no turn."""
    dangerous: bool = False
    """``die`` kills the process, ``raise`` and ``damage`` raise errors, as a bad engine would."""
    broken_build: bool = False


class ToyEngine(Engine):
    """Walk to the last cell; each turn the wind may push back one cell."""

    action_hint = "say <anything>"

    def __init__(self, num_envs: int, config: ToyConfig) -> None:
        super().__init__(num_envs)
        self.config = config
        self.cell = np.zeros(num_envs, dtype=np.int64)
        self.length = np.ones(num_envs, dtype=np.int64)
        self.heard = [""] * num_envs
        self.rngs = [np.random.default_rng(0) for _ in range(num_envs)]

    def begin(self, index_K: Any, tasks: Sequence[Task], seed_K: Sequence[int]) -> None:
        for i, task, seed in zip(index_K.tolist(), tasks, seed_K, strict=True):
            self.rngs[i] = np.random.default_rng(seed)
            self.length[i] = task.data
            self.cell[i] = self.rngs[i].integers(2)
            self.heard[i] = ""

    def act(self, index_K: Any, actions: Sequence[str]) -> Effect:
        k = len(actions)
        reason_K = [""] * k
        costs_K = np.ones(k, dtype=np.bool_)
        for row, (i, action) in enumerate(zip(index_K.tolist(), actions, strict=True)):
            self._danger(action)
            if action in MOVES:
                step = MOVES[action]
                if self.cell[i] + step < 0:
                    reason_K[row] = "inapplicable"
                else:
                    self.cell[i] += step
                    self.heard[i] = ""
                    if self.cell[i] < self.length[i] and self.rngs[i].random() < 0.3:
                        self.cell[i] = max(0, self.cell[i] - 1)
                        self.heard[i] = "wind"
            elif action.startswith("say "):
                self.heard[i] = action[4:]
            elif action == "look":
                costs_K[row] = not self.config.free_look
            else:
                reason_K[row] = "unknown" if action else "unparsed"
        done_K = self.cell[index_K] >= self.length[index_K]
        return Effect(
            reward_K=np.where(done_K, 1.0, -0.125),
            terminated_K=done_K,
            action_K=list(actions),
            grounded_K=np.array([reason == "" for reason in reason_K]),
            reason_K=reason_K,
            costs_turn_K=costs_K,
        )

    def view(self, index_K: Any) -> View:
        cell_K, length_K = self.cell[index_K], self.length[index_K]
        image_K = None
        if self.config.images:
            image_K = np.zeros((len(index_K), 4, 8, 3), dtype=np.uint8)
            image_K[np.arange(len(index_K)), 0, np.minimum(cell_K, 7)] = 255
        return View(
            text_K=[
                f"Zelle {cell} von {length}. Du hörst: {self.heard[i]}"
                for i, cell, length in zip(
                    index_K.tolist(), cell_K.tolist(), length_K.tolist(), strict=True
                )
            ],
            admissible_K=[
                ("left", "right", "look") if cell else ("right", "look") for cell in cell_K
            ],
            success_K=cell_K >= length_K,
            score_K=np.minimum(cell_K / length_K, 1.0),
            image_K=image_K,
            extra={
                "cell": cell_K,
                "weather": np.array(["storm" if self.heard[i] else "calm" for i in index_K]),
                "bounds": np.stack([np.zeros_like(length_K), length_K], axis=1),
            },
        )

    def snapshot(self, index_K: Any) -> list[Any]:
        return [
            (
                int(self.cell[i]),
                int(self.length[i]),
                self.heard[i],
                self.rngs[i].bit_generator.state,
            )
            for i in index_K.tolist()
        ]

    def restore(self, index_K: Any, states: Sequence[Any], tasks: Sequence[Task]) -> None:
        for i, (cell, length, heard, rng) in zip(index_K.tolist(), states, strict=True):
            self.cell[i], self.length[i], self.heard[i] = cell, length, heard
            # The generator may still be used by another copy's tests; take a fresh one.
            self.rngs[i] = np.random.default_rng(0)
            self.rngs[i].bit_generator.state = rng

    def state_keys(self, index_K: Any, source: str) -> list[bytes]:
        keys = []
        for i in index_K.tolist():
            key = f"{self.cell[i]}"
            if source == "state":
                key += f"/{self.length[i]}/{self.heard[i]}"
            keys.append(key.encode())
        return keys

    def expert_action(self, index: int) -> str | None:
        return "right"

    def segment_key(self, index: int) -> str:
        return "far" if 2 * self.cell[index] >= self.length[index] else "near"

    def render(self, index: int, mode: str) -> Any:
        if mode == "rgb_array":
            image = np.zeros((4, 8, 3), dtype=np.uint8)
            image[0, min(int(self.cell[index]), 7)] = 255
            return image
        return "." * int(self.cell[index]) + "@"

    def _danger(self, action: str) -> None:
        if not self.config.dangerous:
            return
        if action == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if action == "raise":
            raise ZeroDivisionError("a bug of the engine")
        if action == "damage":
            raise DataError("a damaged file")


class ToyEnv(TextEnv[ToyConfig]):
    """The corridor, one copy."""

    env_id: ClassVar[str] = TOY
    config_class: ClassVar[type] = ToyConfig
    engine_class: ClassVar[type[ToyEngine]] = ToyEngine
    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}
    seen_as_in_training: ClassVar[bool] = False
    """Whether valid_seen has the tasks of train."""

    @classmethod
    def build(cls, config: ToyConfig, num_envs: int) -> EnvParts:
        if config.broken_build and num_envs > 1:
            raise DataError("no corridor in this folder")
        same = config.split == "train" or (cls.seen_as_in_training and config.split == "valid_seen")
        held = "" if same else f" of {config.split}"
        tasks = [
            Task(f"{config.split}/{i}", ("short", "long")[i % 2], config.split, i, goal, i, i + 2)
            for i, goal in enumerate(f"Reach cell {i + 2}{held}." for i in range(6))
        ]
        return EnvParts(
            engine=cls.engine_class(num_envs, config),
            tasks=TaskList(tasks),
            max_turns=config.max_turns,
            free_turns=config.free_look,
            text_length=200_000,
            image_shape=(4, 8, 3) if config.images else None,
            text_in_observation=config.text,
        )


class ToyVectorEnv(TextVectorEnv):
    """The corridor, many copies; they wait when they are over, unless the test says otherwise."""

    env_class = ToyEnv

    def __init__(self, num_envs: int = 1, **options: Any) -> None:
        super().__init__(num_envs, **{"autoreset_mode": "Disabled", **options})


if TOY not in gym.registry:
    gym.register(id=TOY, entry_point="toy_env:ToyEnv", vector_entry_point="toy_env:ToyVectorEnv")
