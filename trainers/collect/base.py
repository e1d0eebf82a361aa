"""What a collector gives the training loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from creditrl.types import Trajectory

__all__ = ["Collected", "Collector", "drop_failed_groups"]


@dataclass(frozen=True, slots=True)
class Collected:
    """The trajectories of one update."""

    trajectories: list[Trajectory]
    """Valid ones; every group is whole."""
    environment_turns: int
    """Turns that environments were stepped for it, dropped ones included."""
    metrics: dict[str, float] = field(default_factory=dict)


class Collector(Protocol):
    """Collects the trajectories of an update; equal seeds and weights give equal trajectories."""

    def collect(self, update: int) -> Collected:
        """Return the trajectories of that update."""
        ...


def drop_failed_groups(trajectories: list[Trajectory]) -> tuple[list[Trajectory], int]:
    """Return (trajectories of groups without a failed member, number of groups dropped).

    Dropping single members would bias the group's baseline: whether an episode fails may depend on
    what the policy did.
    """
    failed = {trajectory.group for trajectory in trajectories if trajectory.error}
    return [t for t in trajectories if t.group not in failed], len(failed)
