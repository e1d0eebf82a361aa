"""Settings of HISR's models, apart from their code: no torch here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from creditrl.checked import Bounds, Checked, Count
from creditrl.errors import ConfigError
from creditrl.trainers.models.configs import BackboneConfig

__all__ = ["HindsightConfig", "SegmenterConfig"]


@dataclass(frozen=True, slots=True)
class SegmenterConfig(Checked):
    """Cut of episodes into segments."""

    kind: Literal["rule", "entropy", "llm", "turn"] = "rule"
    """"rule": the environment's ``segment_key``; "entropy": jumps of the policy's entropy; "llm":
    a language model is asked; "turn": every turn is a segment."""
    least: Count = 4
    """Segments that an episode should have (household tasks 4, WebShop 3)."""
    jump: float = 1.0
    """Of "entropy": how large a rise begins a segment, in standard deviations (inferred)."""
    model: str = ""
    """Of "llm": name of a model behind an OpenAI-compatible endpoint."""
    base_url: str = ""
    """Of "llm": the endpoint."""

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if self.kind == "llm" and not self.model:
            raise ConfigError(
                'SegmenterConfig.kind is "llm" and no model is named: set model and base_url.'
            )


@dataclass(frozen=True, slots=True)
class HindsightConfig(Checked):
    """A model that restores a lost turn from all else and the outcome."""

    backbone: BackboneConfig = field(default_factory=lambda: BackboneConfig(lr=1e-6))
    """Its network, begun as the policy (HISR: lr 1e-6)."""
    epochs: Count = 1
    """Passes over the explored turns."""
    batch: Count = 192
    """Turns of an optimizer step (household tasks 192, WebShop 24)."""
    turns_per_episode: int | None = None
    """Lost turns that are learned from, per episode; None: all."""
    bare: bool = False
    """For small models that were taught no English: no instructions, and the lost turn last, as
    such a model met it, behind what came after it, the outcome and what came before."""
    reach: int | None = None
    """Show only so many turns before and after the lost one; None: all."""
    online: bool = False
    """Go on learning while the policy trains, which is the paper's own wish."""
    held_out: Annotated[float, Bounds(0, 1, open_high=True)] = 0.1
    """Share of the explored tasks that is kept for judging the model, in [0, 1)."""
