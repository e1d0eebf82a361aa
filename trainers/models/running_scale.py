"""Running mean and deviation of a critic's targets, and the head that keeps its values under them.

Source: van Hasselt et al. 2016, "Learning values across many orders of magnitude" (PopArt), arXiv
1602.07714, eq. 4 to 7.
Differences: the first n batches count alike up to ``n = 1 / rate``, and a critic that has learned
nothing takes the first batch's mean for its value, where theirs keeps to 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from creditrl.types import FloatArray

if TYPE_CHECKING:
    import torch

__all__ = ["RunningScale"]

_LEAST = 1e-6
"""Deviations below this are taken for rounding, and divided by 1."""


@dataclass(slots=True)
class RunningScale:
    """Mean and mean square of everything seen so far, the last batches most."""

    rate: float = 0.1
    """Weight of a new batch, once ``1 / rate`` of them were seen."""
    mean: float = 0.0
    square: float = 1.0
    batches: int = 0

    @property
    def std(self) -> float:
        """The deviation that is divided by; 1 where the values do not differ."""
        variance = self.square - self.mean**2
        return float(np.sqrt(variance)) if variance > _LEAST**2 else 1.0

    def normalised(self, value: FloatArray) -> FloatArray:
        """Return ``(value - mean) / std``, float32."""
        found: FloatArray = ((value.astype(np.float64) - self.mean) / self.std).astype(np.float32)
        return found

    def restored(self, value: FloatArray) -> FloatArray:
        """Return the values that :meth:`normalised` was given, float32."""
        found: FloatArray = (value.astype(np.float64) * self.std + self.mean).astype(np.float32)
        return found

    def see(self, value: FloatArray, head: torch.nn.Linear) -> None:
        """Take a batch of targets in, and rescale the last layer so that no value changes.

        Args:
            value: the targets.
            head: the layer that gives normalised values; its weights are changed in place. Left as
                it is at the first batch, before which it knows nothing.
        """
        import torch

        before_mean, before_std = self.mean, self.std
        wide = value.astype(np.float64)
        self.batches += 1
        weight = max(self.rate, 1.0 / self.batches)
        self.mean += weight * (float(wide.mean()) - self.mean)
        self.square += weight * (float((wide**2).mean()) - self.square)
        if self.batches == 1:
            return
        with torch.no_grad():
            head.weight.mul_(before_std / self.std)
            head.bias.mul_(before_std).add_(before_mean - self.mean).div_(self.std)
