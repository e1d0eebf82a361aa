"""Helpers for tests of several environments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import gymnasium as gym
import pytest

import creditrl
from creditrl.envs.prompt import Ask


def follow_expert(env: gym.Env[Any, Any], **reset: Any) -> tuple[float, dict[str, Any]]:
    """Play to the end with the expert, after a reset with these arguments if there are any."""
    info = env.reset(**reset)[1] if reset else {}
    total, over = 0.0, False
    while not over:
        action = creditrl.expert_action(env)
        assert action is not None, info.get("goal")
        _, reward, terminated, truncated, info = env.step(action)
        total += float(reward)
        over = terminated or truncated
    return total, info


def expert_asks(env: Any, tasks: Iterable[int]) -> Iterator[tuple[Ask, str]]:
    """Play tasks as the expert does; yield what an agent would be asked, and what it does."""
    env = env.unwrapped
    for task in tasks:
        text, info = env.reset(seed=1, options={"task": task})
        history: tuple[tuple[str, str], ...] = ()
        over = False
        while not over:
            action = env.expert_action()
            asked = (text, info["goal"], info["admissible_actions"], info["action_hint"])
            yield Ask(*asked, len(history), history, env.env_id), action
            history = (*history, (text, action))
            text, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated


def refusal(error: type[Exception], call: Callable[..., object], *args: Any, **more: Any) -> str:
    """Return what an error says, in one line, that a call raises."""
    with pytest.raises(error) as caught:
        call(*args, **more)
    message = str(caught.value)
    assert "\n" not in message
    return message


def without_display(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a machine without a display."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
