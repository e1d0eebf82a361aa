"""Settings of the implicit process reward model, apart from its code: no torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from creditrl.checked import Checked, Count, Positive
from creditrl.trainers.models.configs import BackboneConfig

__all__ = ["ImplicitPRMConfig"]


@dataclass(frozen=True, slots=True)
class ImplicitPRMConfig(Checked):
    """A reward model whose token rewards are log-ratios, fitted to outcomes."""

    backbone: BackboneConfig = field(default_factory=lambda: BackboneConfig(lr=1e-6))
    """Its network, begun as the policy (iStar and PRIME: lr 1e-6)."""
    model: str = "policy"
    """Initial weights: the policy, or a text model (folder or name) with the policy's tokenizer,
    which reads the observation in words beside a policy that is shown pictures (iStar on
    VisualSokoban)."""
    beta: Positive = 0.05
    """Scale of the log-ratio."""
    loss: Literal["pairs", "outcome"] = "pairs"
    """"pairs": successes against failures of a group (iStar). "outcome": cross-entropy of each
    episode's success (PRIME)."""
    against: Literal["sampler", "reference"] = "sampler"
    """Denominator of the ratio: the policy that sampled (iStar), or the reference (PRIME)."""
    update: Literal["after", "before"] = "after"
    """Whether it learns from an update's episodes after it has scored them (iStar: "latest PRM from
    the previous training step"), or before (PRIME)."""
    batch: Count = 64
    """Pairs, or episodes, of an optimizer step (iStar: 64)."""
    epochs: Count = 1
    """Passes over an update's pairs or episodes."""
    mean_over_turns: bool = False
    """Score a trajectory by the mean over its turns instead of the sum (iStar's released code)."""
    learn: bool = True
    """False: it never learns. iStar's released code builds its loss on detached values."""
