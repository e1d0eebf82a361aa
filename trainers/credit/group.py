"""Group advantages: compare an episode's outcome with the other members of its group.

Sources: GRPO, Shao et al. 2024 (DeepSeekMath), section 4.1.2; Dr.GRPO, Liu et al. 2025
("Understanding R1-Zero-Like Training"), section 3.2; RLOO, Ahmadian et al. 2024 ("Back to Basics"),
section 2.2; REINFORCE++ and its baseline form, Hu et al. 2025.
Differences: members whose outcomes are equal up to rounding get exactly 0 (the printed formulas
divide rounding noise by its own deviation). A group of one keeps its raw outcome, as released
trainers do, or gets 0 (``singleton="zero"``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from creditrl.errors import ConfigError, CreditInputError, did_you_mean
from creditrl.trainers.credit.check import finite
from creditrl.trainers.credit.spread import first_turns
from creditrl.trainers.credit.stats import group_stats
from creditrl.trainers.credit.whiten import whiten
from creditrl.types import BoolArray, FloatArray, TurnTable

__all__ = [
    "GroupConfig",
    "GroupKind",
    "group_advantage",
    "group_advantage_of_turns",
    "whole_groups",
]

GroupKind = Literal["grpo", "dr_grpo", "rloo", "reinforce++", "reinforce++_baseline"]


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Which estimator compares the members of a group, and what it does at the edges."""

    kind: GroupKind = "grpo"
    """"grpo", "dr_grpo", "rloo", "reinforce++" or "reinforce++_baseline"."""
    outcome: str = "return_N"
    """Column of the turn table that holds the outcome; repeated on each turn of an episode."""
    singleton: Literal["raw", "zero"] = "raw"
    """A group of one: "raw" keeps its outcome, "zero" gives no credit."""
    over: Literal["trajectories", "rows"] = "trajectories"
    """"rows" counts a trajectory once per turn in every statistic, which weighs long episodes more
    (the default of Feng et al. 2025's released trainer)."""
    epsilon: float = 1e-6
    """Added to the standard deviation (GRPO's released implementations)."""

    def __post_init__(self) -> None:
        for name, choices in (
            ("kind", get_args(GroupKind)),
            ("singleton", ("raw", "zero")),
            ("over", ("trajectories", "rows")),
        ):
            value = getattr(self, name)
            if value not in choices:
                raise ConfigError(
                    f"GroupConfig.{name} is {value!r}.{did_you_mean(str(value), choices)} "
                    f"Known: {', '.join(choices)}."
                )


def group_advantage(
    return_B: ArrayLike,
    group_B: ArrayLike,
    cfg: GroupConfig,
    *,
    weight_B: ArrayLike | None = None,
    valid_B: ArrayLike | None = None,
    episode_ids: Sequence[str] = (),
) -> FloatArray:
    """Return one advantage per episode.

    With ``n``, ``mean`` and ``std`` (unbiased) of the group's returns ``r``:

    ========================  =====================================
    ``grpo``                  ``(r - mean) / (std + epsilon)``
    ``dr_grpo``               ``r - mean``
    ``rloo``                  ``n / (n - 1) (r - mean)``, which is r minus the mean of the others
    ``reinforce++``           ``whiten(r)`` over the batch; groups play no part
    ``reinforce++_baseline``  ``whiten(r - mean)`` over the batch
    ========================  =====================================

    Args:
        return_B: outcome of each episode.
        group_B: group of each episode; any integers, any order.
        cfg: see :class:`GroupConfig`; ``cfg.over`` is applied by the caller through ``weight_B``.
        weight_B: how often each episode counts (its number of turns for ``over="rows"``); None:
            once. ``n`` is then the sum of the weights, and a group of one is one row, not one
            episode.
        valid_B: False for failed episodes: they count in no statistic, get advantage 0, and may
            have any return, NaN included. Dropping single members biases the baseline, so prefer
            :func:`whole_groups`.
        episode_ids: trajectory id of each episode, for errors.

    Returns:
        ``advantage_B`` float32. Groups with equal returns get exactly 0; in a batch of equal
        returns ``reinforce++`` does, too. Without weights and singletons it sums to 0 within
        every group for the first three.

    Raises:
        CreditInputError: NaN (names the episode), columns of unequal length, a weight below 1.
    """
    group = np.asarray(group_B)
    size = len(group)
    valid = np.ones(size, np.bool_) if valid_B is None else np.asarray(valid_B, np.bool_)
    raw = np.asarray(return_B, dtype=np.float64)
    if raw.shape != (size,) or valid.shape != (size,):
        raise CreditInputError(
            f"return_B has shape {raw.shape} and valid_B {valid.shape}: expected ({size},), "
            "one value per episode as in group_B."
        )
    value = finite("return_B", np.where(valid, raw, 0.0), None, episode_ids)[valid]
    weight = None
    if weight_B is not None:
        weight = finite("weight_B", weight_B, None, episode_ids, length=size)[valid]
        if (weight < 1).any():
            raise CreditInputError(
                f"weight_B has {weight.min()}: expected at least 1 (how often an episode counts)."
            )
    advantage_B = np.zeros(size, dtype=np.float32)
    advantage_B[valid] = _advantage(value, group[valid], weight, cfg)
    return advantage_B


def _advantage(
    value: NDArray[np.float64],
    group: NDArray[Any],
    weight: NDArray[np.float64] | None,
    cfg: GroupConfig,
) -> FloatArray:
    if cfg.kind == "reinforce++":
        return whiten(value, weight_N=weight)
    stats = group_stats(value, group, weight)
    size, std = stats.size_K[stats.index_N], stats.std_K[stats.index_N]
    centred = stats.centred(value)
    alone = size <= 1
    if cfg.kind == "grpo":
        centred = centred / (std + cfg.epsilon)
    elif cfg.kind == "rloo":
        centred = centred * size / np.where(alone, 1.0, size - 1.0)
    centred = np.where(alone, value if cfg.singleton == "raw" else 0.0, centred)
    if cfg.kind == "reinforce++_baseline":
        return whiten(centred, weight_N=weight)
    return centred.astype(np.float32)


def group_advantage_of_turns(turns: TurnTable, cfg: GroupConfig) -> FloatArray:
    """Return the group advantage of each turn's episode, repeated on its turns.

    Args:
        turns: flat table of N turns; reads ``cfg.outcome``, ``episode_N``, ``group_N``.
        cfg: see :class:`GroupConfig`.

    Returns:
        ``advantage_N`` float32; see :func:`group_advantage`.

    Raises:
        CreditInputError: the outcome column is missing or has NaN (names the episode).
    """
    outcome_N = turns.require(cfg.outcome, hint="name a column with the episodes' outcome")
    first_B, count_B = first_turns(turns.episode_N)
    advantage_B = group_advantage(
        outcome_N[first_B],
        turns.group_N[first_B],
        cfg,
        weight_B=count_B if cfg.over == "rows" else None,
    )
    return np.repeat(advantage_B, count_B)


def whole_groups(valid_B: ArrayLike, group_B: ArrayLike) -> BoolArray:
    """Return True for episodes all of whose group members are valid.

    Whether an episode fails may depend on what the policy did, so a baseline over the survivors
    is biased; the group goes as a whole.

    Args:
        valid_B: False for failed episodes.
        group_B: group of each episode.
    """
    _, index_B = np.unique(np.asarray(group_B), return_inverse=True)
    failed_K = np.bincount(index_B, weights=~np.asarray(valid_B, np.bool_))
    whole_B: BoolArray = failed_K[index_B] == 0
    return whole_B
