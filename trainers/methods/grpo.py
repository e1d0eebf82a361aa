"""GRPO: compare an episode's outcome with the other members of its group.

Source: Shao et al. 2024 (DeepSeekMath), section 4.1.2. The outcome is that of a whole multi-turn
episode, as in the baselines of SPA, iStar, HISR and 3SPO.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from creditrl.trainers.credit.group import GroupConfig, GroupKind, group_advantage_of_turns
from creditrl.trainers.losses.config import PolicyLossConfig
from creditrl.trainers.methods.base import GRPO_LOSS, Method, credit_of_parts, register_method
from creditrl.trainers.space import COMMON, PENALTY, WEIGHTING, one_of
from creditrl.types import Credit, TokenTable, TurnTable

__all__ = ["GRPO", "GRPOConfig"]


@dataclass(frozen=True, slots=True)
class GRPOConfig:
    """GRPO's numbers."""

    divide_by_std: bool = True
    """True is the paper's form; False only subtracts the group's mean (Liu et al. 2025)."""
    singleton: Literal["raw", "zero"] = "raw"
    """A group of one keeps its raw outcome, or gets no credit."""
    over: Literal["trajectories", "rows"] = "trajectories"
    """Whether a trajectory counts once in mean and std, or once per turn."""
    invalid_penalty: float = 0.0
    """Subtracted from the advantage of turns whose action was not executed (iStar, GiGPO, 3SPO:
    0.1)."""
    loss: PolicyLossConfig = GRPO_LOSS
    """Clip 0.2 at token level, mean over a sequence's tokens (eq. 3 of the paper)."""


@register_method(
    "grpo",
    config=GRPOConfig,
    kind="group",
    granularity="trajectory",
    reward_source="outcome",
    paper="Shao et al. 2024, 2402.03300",
)
class GRPO(Method[GRPOConfig]):
    """Group relative policy optimization."""

    space = {
        **COMMON,
        "method.divide_by_std": one_of(False, True),
        "method.loss.aggregate": WEIGHTING,
        "method.invalid_penalty": PENALTY,
    }

    def credit(self, turns: TurnTable, tokens: TokenTable) -> Credit:
        """Return the group advantage of each turn's episode."""
        cfg = self.config
        kind: GroupKind = "grpo" if cfg.divide_by_std else "dr_grpo"
        group = GroupConfig(kind=kind, singleton=cfg.singleton, over=cfg.over)
        outcome_N = group_advantage_of_turns(turns, group)
        return credit_of_parts(self.name, turns, cfg.invalid_penalty, outcome=outcome_N)
