"""What tests of several environments share."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

import creditrl


def follow_expert(env: gym.Env[Any, Any], **reset: Any) -> tuple[float, dict[str, Any]]:
    """Play to the end as the expert does, from a reset with these arguments if there are any."""
    info = env.reset(**reset)[1] if reset else {}
    total, over = 0.0, False
    while not over:
        action = creditrl.expert_action(env)
        assert action is not None, info.get("goal")
        _, reward, terminated, truncated, info = env.step(action)
        total += float(reward)
        over = terminated or truncated
    return total, info
