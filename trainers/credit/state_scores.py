"""State scores of 3SPO: what is left to learn at a state, from how trajectories through it ended.

Source: 3SPO, arXiv 2606.09961: the score of a state, the number of rollouts there, and the reward
of a turn between two states. A state with a score near 1 is worth many rollouts; at 0 a branch is
cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from creditrl.errors import ConfigError

__all__ = [
    "StateScoreConfig",
    "StateTable",
    "episode_rewards",
    "novelty_weight",
    "rollouts_at",
    "state_score",
    "turn_reward",
]

_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class StateScoreConfig:
    """3SPO's numbers."""

    alpha: float = 50.0
    """Growth of lambda with the clock. At 50 scores are nearly 0 or 1 whatever the clock (rollouts
    0, 1 or 8 from the second turn on); the released class has 1, where 2 to 7 are reached too."""
    lambda_clock: Literal["depth", "global"] = "depth"
    """What t in ``lambda_t = alpha ln t`` counts, from 1: the turns of an episode (inferred from
    "constant for a fixed depth"), or trajectories so far and one more (the released code)."""
    xi: int = 10
    """The paper's xi: failures through a state before it may be given up."""
    zeta: float = 0.1
    """The paper's zeta: success rate up to which it then is."""
    novelty: bool = True
    """Ablation: False takes the novelty weight as 0."""
    score_difference: bool = True
    """Ablation: False leaves the difference of scores out of the turn's reward."""
    novelty_decay: float = 0.1
    """Decay of the novelty weight ``w = 1/2 exp(-decay N)``."""
    fixed_weight: float | None = None
    """Ablation: a constant instead of that weight, in [0, 1/2]."""

    def __post_init__(self) -> None:
        if self.alpha < 0 or self.xi < 1 or not 0 <= self.zeta <= 1:
            raise ConfigError(
                f"StateScoreConfig: alpha={self.alpha}, xi={self.xi}, "
                f"zeta={self.zeta}: expected at least 0, at least 1, and 0 to 1."
            )
        if self.lambda_clock not in ("depth", "global"):
            raise ConfigError(
                f"StateScoreConfig.lambda_clock is {self.lambda_clock!r}. Known: depth, global."
            )
        if self.fixed_weight is not None and not 0 <= self.fixed_weight <= 0.5:
            raise ConfigError(
                f"StateScoreConfig.fixed_weight is {self.fixed_weight}: expected 0 to 0.5."
            )


def state_score(visits: int, successes: int, clock: int, cfg: StateScoreConfig) -> float:
    """Return S(s) in [0, 1].

    1 for a state that no trajectory went through; 0 where at least ``xi`` failed and the success
    rate is at most ``zeta``; else ``exp(-lambda_t rate)`` with ``lambda_t = alpha
    ln t`` and ``rate = successes / (visits + 1e-6)``.

    Args:
        visits: completed trajectories through the state (N).
        successes: those that succeeded.
        clock: t, from 1.
        cfg: see :class:`StateScoreConfig`.
    """
    if visits == 0:
        return 1.0
    rate = successes / (visits + _EPSILON)
    if visits - successes >= cfg.xi and rate <= cfg.zeta:
        return 0.0
    return math.exp(-cfg.alpha * math.log(clock) * rate)


def rollouts_at(score: float, most: int = 8) -> int:
    """Return ``ceil(most * S)``: 0 cuts the branch, 1 steps without an update."""
    return math.ceil(most * score)


def novelty_weight(visits: int, cfg: StateScoreConfig) -> float:
    """Return w, what novelty weighs in the reward of a turn: ``1/2 exp(-0.1 N(s))``, in [0, 1/2].

    Args:
        visits: N(s), completed trajectories through the state that the turn left.
        cfg: its decay, and the ablations: a constant, or 0 without novelty.
    """
    if cfg.fixed_weight is not None:
        return cfg.fixed_weight
    return 0.5 * math.exp(-cfg.novelty_decay * visits) if cfg.novelty else 0.0


def turn_reward(
    *,
    moved: bool,
    before: float,
    after: float,
    visits: int,
    success: float,
    cfg: StateScoreConfig,
) -> float:
    """Return ``w 1[s' != s] + (1/2 - w)(S(s) - S(s')) + 1/2 R_success``.

    Args:
        moved: whether the action led to another state.
        before: S(s).
        after: S(s'); 0 at the end of an episode, failed ones too (inferred), so that reaching it is
            never punished by its novelty.
        visits: N(s); w is :func:`novelty_weight`'s.
        success: 1 (or the environment's score) on the turn that ends an episode so, else 0.
        cfg: the ablations.
    """
    weight = novelty_weight(visits, cfg)
    difference = (0.5 - weight) * (before - after) if cfg.score_difference else 0.0
    return weight * moved + difference + 0.5 * success


class StateTable:
    """How trajectories through each state ended; grows over a whole run.

    A state counts once per trajectory, however often it was passed.
    """

    def __init__(self) -> None:
        self._counts: dict[int, list[int]] = {}
        self.trajectories = 0
        """Completed ones."""
        self.solved = 0
        """Of these, successes."""

    def __len__(self) -> int:
        """States that a completed trajectory went through."""
        return len(self._counts)

    def record(self, states: Iterable[int], success: bool) -> None:
        """Count one completed trajectory."""
        for state in set(states):
            count = self._counts.setdefault(state, [0, 0])
            count[0] += 1
            count[1] += success
        self.trajectories += 1
        self.solved += success

    def visits(self, state: int) -> int:
        """Return N(s)."""
        return self._counts[state][0] if state in self._counts else 0

    def score(self, state: int, depth: int, cfg: StateScoreConfig) -> float:
        """Return S(s) for a state at a turn.

        Args:
            state: its key.
            depth: turns before it, from 0.
            cfg: see :func:`state_score`.
        """
        visits, successes = self._counts.get(state, (0, 0))
        clock = depth + 1 if cfg.lambda_clock == "depth" else 1 + self.trajectories
        return state_score(visits, successes, clock, cfg)

    def high_share(self, cfg: StateScoreConfig, depth: int = 1) -> float:
        """Return the share of states whose score is above one half at a depth."""
        if not self._counts:
            return 0.0
        high = sum(self.score(state, depth, cfg) > 0.5 for state in self._counts)
        return high / len(self._counts)

    def state_dict(self) -> dict[str, Any]:
        """Return the counts as plain lists."""
        return {
            "states": list(self._counts),
            "visits": [count[0] for count in self._counts.values()],
            "successes": [count[1] for count in self._counts.values()],
            "trajectories": self.trajectories,
            "solved": self.solved,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what :meth:`state_dict` returned."""
        columns = zip(state["states"], state["visits"], state["successes"], strict=True)
        self._counts = {key: [visits, successes] for key, visits, successes in columns}
        self.trajectories = int(state["trajectories"])
        self.solved = int(state["solved"])


def episode_rewards(
    states: Sequence[int],
    keys: Sequence[int],
    gained: float,
    table: StateTable,
    cfg: StateScoreConfig,
) -> list[float]:
    """Return :func:`turn_reward` of each turn of a finished episode, by the counts as they stand.

    Args:
        states: of T turns, the state that each left, and the one in which the episode ended.
        keys: T keys of the table, of the states that were left.
        gained: R_success of the last turn.
        table: is read only.
        cfg: see :class:`StateScoreConfig`.
    """
    last = len(keys) - 1
    return [
        turn_reward(
            moved=states[depth + 1] != states[depth],
            before=table.score(key, depth, cfg),
            after=0.0 if depth == last else table.score(keys[depth + 1], depth + 1, cfg),
            visits=table.visits(key),
            success=gained if depth == last else 0.0,
            cfg=cfg,
        )
        for depth, key in enumerate(keys)
    ]
