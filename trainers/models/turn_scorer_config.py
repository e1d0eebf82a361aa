"""Settings of models that judge turns, apart from their code: no torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from creditrl.checked import Bounds, Checked, Count, Natural
from creditrl.trainers.models.configs import BackboneConfig

__all__ = ["TurnScorerConfig"]


@dataclass(frozen=True, slots=True)
class TurnScorerConfig(Checked):
    """A language model with a head that is read at the last token of each turn's reply."""

    backbone: BackboneConfig = field(default_factory=lambda: BackboneConfig(lr=3e-6, warmup=500))
    """Its network, begun as the policy (SPA: lr 3e-6, 500 steps of warm-up)."""
    hidden: Natural = 64
    """Width of the head's hidden layer; 0: a linear head."""
    reads: Literal["hidden", "logits"] = "hidden"
    """What the head reads: the last hidden state, or the logits of the next token (SPA's released
    code)."""
    epochs: Count = 1
    """Passes over the explored episodes."""
    batch: Count = 8
    """Episodes of an optimizer step (SPA: 8)."""
    held_out: Annotated[float, Bounds(0, 1, open_high=True)] = 0.1
    """Share of the explored tasks that is kept for judging the model, in [0, 1)."""
