"""Settings of the discriminator, apart from its code: no torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from creditrl.checked import Checked
from creditrl.trainers.models.configs import BackboneConfig
from creditrl.trainers.models.turn_scorer_config import TurnScorerConfig

__all__ = ["DiscriminatorConfig"]


@dataclass(frozen=True, slots=True)
class DiscriminatorConfig(Checked):
    """A model that tells the expert's turns from the agent's, and when it learns."""

    scorer: TurnScorerConfig = field(
        default_factory=lambda: TurnScorerConfig(
            backbone=BackboneConfig(lr=1e-5), batch=64, held_out=0.0
        )
    )
    """Its network; a batch counts turns (inferred). Nothing is held out: every update judges it on
    episodes that it has not seen."""
    update: Literal["before", "after"] = "before"
    """Whether it learns from an update's turns before it scores them (GAIL's order), or after."""
