"""Count of the different states that a run has seen, and of its rollouts: its exploration ratio."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["SeenStates"]


class SeenStates:
    """The states reached over a whole run, without final states of episodes.

    A rollout is an episode, or a branch of a tree. Equal states of different tasks count once, so
    the hash must also distinguish tasks, as a complete observation does.
    """

    def __init__(self) -> None:
        self._states: set[int] = set()
        self.rollouts = 0
        """Number of finished rollouts."""

    def __len__(self) -> int:
        return len(self._states)

    def add(self, states: Iterable[int], rollouts: int) -> None:
        """Count hashes of reached states, and finished rollouts."""
        self._states.update(states)
        self.rollouts += rollouts

    def metrics(self) -> dict[str, float]:
        """Return both counts."""
        return {"states_seen": float(len(self)), "rollouts_done": float(self.rollouts)}

    def state_dict(self) -> dict[str, Any]:
        """Return the states as a plain list."""
        return {"states": list(self._states), "rollouts": self.rollouts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what :meth:`state_dict` returned."""
        self._states = set(state["states"])
        self.rollouts = int(state["rollouts"])
