"""Settings of the critic, apart from its code: naming a critic must not import torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from creditrl.errors import ConfigError
from creditrl.trainers.losses.config import ValueLossConfig

__all__ = ["CriticConfig"]


@dataclass(frozen=True, slots=True)
class CriticConfig:
    """A value function over reply tokens, and how it is fitted."""

    kind: Literal["copy", "head"] = "copy"
    """"copy": a network of its own, begun as a LoRA-free copy of the policy (as much memory as its
    weights in float32, and AdamW's two moments). "head": a small MLP on the policy's last hidden
    state, which it does not move (next to no memory; as good as these states are)."""
    hidden: int = 64
    """Width of the head's hidden layer, for kind "head"; "copy" has a linear head."""
    lr: float = 1e-4
    """AdamW's learning rate (HISR: 1e-4)."""
    epochs: int = 1
    """Passes over an update's rows."""
    minibatches: int = 1
    """Optimizer steps per pass; the distinct rows are dealt over them."""
    loss: ValueLossConfig = field(default_factory=ValueLossConfig)
    """Clip of a value's step."""
    weight_decay: float = 0.0
    """AdamW's."""
    grad_clip: float = 1.0
    """Largest norm of the gradient."""
    token_budget: int = 16384
    """Padded tokens per micro-batch."""

    def __post_init__(self) -> None:
        if self.kind not in ("copy", "head"):
            raise ConfigError(f"CriticConfig.kind is {self.kind!r}: expected 'copy' or 'head'.")
        for name in ("hidden", "epochs", "minibatches", "token_budget"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"CriticConfig.{name} is {getattr(self, name)}: expected at least 1."
                )
        if not self.lr > 0:
            raise ConfigError(f"CriticConfig.lr is {self.lr}: expected more than 0.")
