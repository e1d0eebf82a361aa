"""Turn and token tables for tests, from short lists."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from creditrl.types import TokenTable, TurnTable


def make_turns(
    reward: Sequence[float],
    episode: Sequence[int],
    group: Sequence[int] | None = None,
    state: Sequence[int] | None = None,
    grounded: Sequence[bool] | None = None,
    success: Sequence[bool] | None = None,
) -> TurnTable:
    """Return a table of consecutive episodes; groups default to one."""
    reward_N = np.asarray(reward, dtype=np.float32)
    episode_N = np.asarray(episode)
    n = len(reward_N)
    sums = np.bincount(episode_N, weights=reward_N)
    group_N = np.zeros(n, dtype=np.int64) if group is None else np.asarray(group)
    return TurnTable(
        reward_N=reward_N,
        episode_N=episode_N,
        turn_N=np.array([int((episode_N[:i] == episode_N[i]).sum()) for i in range(n)]),
        task_N=group_N,
        group_N=group_N,
        grounded_N=np.ones(n, bool) if grounded is None else np.asarray(grounded),
        return_N=sums[episode_N].astype(np.float32),
        success_N=np.zeros(n, bool) if success is None else np.asarray(success),
        truncated_N=np.zeros(n, bool),
        state_N=None if state is None else np.asarray(state),
        episode_ids=tuple(f"e{i}" for i in range(int(episode_N.max()) + 1 if n else 0)),
    )


def make_tokens(turn: Sequence[int], value: Sequence[float] | None = None) -> TokenTable:
    """Return a token table with log-probability -1 everywhere."""
    turn_M = np.asarray(turn)
    return TokenTable(
        turn_M=turn_M,
        logprob_M=np.full(len(turn_M), -1.0, dtype=np.float32),
        value_M=None if value is None else np.asarray(value, dtype=np.float32),
    )
