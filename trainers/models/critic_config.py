"""Settings of the critic, apart from its code: naming a critic must not import torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from creditrl.checked import Bounds, Checked, Count, Natural, Positive
from creditrl.trainers.losses.config import ValueLossConfig

__all__ = ["CriticConfig"]


@dataclass(frozen=True, slots=True)
class CriticConfig(Checked):
    """A value function over reply tokens, and how it is fitted."""

    kind: Literal["copy", "head"] = "copy"
    """"copy": a network of its own, begun as a LoRA-free copy of the policy (as much memory as its
    weights in float32, and AdamW's two moments). "head": a small MLP on the policy's last hidden
    state, which it does not move (next to no memory; as good as these states are)."""
    hidden: Count = 64
    """Width of the head's hidden layer, for kind "head"; "copy" has a linear head."""
    lr: Positive = 1e-4
    """AdamW's learning rate (HISR: 1e-4)."""
    epochs: Count = 1
    """Passes over an update's rows."""
    warmup: Natural = 0
    """Updates at the beginning in which it learns and the policy stays as it is."""
    normalise: bool = False
    """Fit to targets less their running mean, divided by their running deviation. The head is
    rescaled whenever these move, so that no value changes (PopArt, van Hasselt et al. 2016, arXiv
    1602.07714). A step is then as large for rewards of 0.1 as for rewards of 10. No paper here
    prints it, so the default fits to the targets as they are."""
    normalise_rate: Annotated[float, Bounds(0, 1, open_low=True)] = 0.1
    """Weight of an update's targets in these running statistics, in (0, 1]; the first n updates
    count alike up to n = 1 / rate (inferred)."""
    minibatches: Count = 1
    """Optimizer steps per pass; the distinct rows are dealt over them."""
    loss: ValueLossConfig = field(default_factory=ValueLossConfig)
    """Clip of a value's step; in deviations of the targets where these are normalised."""
    weight_decay: float = 0.0
    """AdamW's."""
    grad_clip: float = 1.0
    """Largest norm of the gradient."""
    token_budget: Count = 16384
    """Padded tokens per micro-batch."""
