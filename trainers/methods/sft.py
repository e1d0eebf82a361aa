"""SFT: clone expert trajectories; loss on replies only.

Source: behaviour cloning as step 1 of SPA (2505.20732) and HISR (2603.18683) has it. As credit it
is the plainest case: every turn of a demonstration gets advantage 1 under the log-likelihood loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from creditrl.trainers.losses.config import PolicyLossConfig
from creditrl.trainers.methods.base import Method, register_method
from creditrl.types import Credit, TokenTable, TurnTable

__all__ = ["SFT", "SFTConfig"]


@dataclass(frozen=True, slots=True)
class SFTConfig:
    """Which tokens count how much."""

    loss: PolicyLossConfig = field(
        default_factory=lambda: PolicyLossConfig(ratio="none", aggregate="token-mean")
    )
    """Token-mean negative log-likelihood of the demonstrated replies."""


@register_method(
    "sft",
    config=SFTConfig,
    kind="imitation",
    granularity="token",
    reward_source="expert demonstrations",
    paper="behaviour cloning, as in SPA 2505.20732",
)
class SFT(Method[SFTConfig]):
    """Supervised fine-tuning on demonstrations."""

    collection = "demonstrations"

    def credit(self, turns: TurnTable, tokens: TokenTable) -> Credit:
        """Return advantage 1 for every turn."""
        return Credit(self.name, advantage_N=np.ones(len(turns), dtype=np.float32))
