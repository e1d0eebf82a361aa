"""GiGPO: GRPO's episode advantage plus a comparison of turns that left the same state.

Source: Feng et al. 2025, "Group-in-Group Policy Optimization" (2505.10978): ``A = A^E + w A^S``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from creditrl.trainers.credit.group import GroupConfig, group_advantage_of_turns
from creditrl.trainers.credit.step_group import StepGroupConfig, step_group
from creditrl.trainers.losses.config import PolicyLossConfig
from creditrl.trainers.methods.base import Method, credit_of_parts, register_method
from creditrl.types import Credit, StateSource, TokenTable, TurnTable

__all__ = ["GiGPO", "GiGPOConfig"]


@dataclass(frozen=True, slots=True)
class GiGPOConfig:
    """GiGPO's numbers."""

    step_weight: float = 1.0
    """Weight w of the step-level advantage (omega in the paper)."""
    gamma: float = 0.95
    """Discount per turn of the returns that are compared at a state."""
    normalise: Literal["mean", "mean-std"] = "mean"
    """Of both advantages: only centred, or also divided by the std (their ALFWorld script)."""
    anchor: StateSource = "state"
    """What makes two states equal: the simulator's state, or the observation's text."""
    singleton: Literal["raw", "zero"] = "raw"
    """Episode level: a group of one keeps its raw outcome, or gets no credit."""
    invalid_penalty: float = 0.0
    """Taken off the advantage of turns whose action was not executed (0.1 in the paper)."""
    loss: PolicyLossConfig = field(
        default_factory=lambda: PolicyLossConfig(
            ratio="token", clip_low=0.2, clip_high=0.2, aggregate="seq-mean-token-mean"
        )
    )
    """As GRPO's."""


@register_method(
    "gigpo",
    config=GiGPOConfig,
    kind="group",
    granularity="turn",
    reward_source="outcome and returns at equal states",
    paper="Feng et al. 2025, 2505.10978",
)
class GiGPO(Method[GiGPOConfig]):
    """Group-in-group policy optimization."""

    @property
    def hash_states(self) -> StateSource | None:
        """Turns are compared where they left the same state."""
        return self.config.anchor

    def credit(self, turns: TurnTable, tokens: TokenTable) -> Credit:
        """Return episode-level plus step-level advantage."""
        cfg = self.config
        outcome_N = group_advantage_of_turns(
            turns,
            GroupConfig(
                kind="grpo" if cfg.normalise == "mean-std" else "dr_grpo", singleton=cfg.singleton
            ),
        )
        step_N = step_group(turns, StepGroupConfig(gamma=cfg.gamma, normalise=cfg.normalise))
        return credit_of_parts(
            self.name, turns, cfg.invalid_penalty, outcome=outcome_N, step=cfg.step_weight * step_N
        )
