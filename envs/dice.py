"""Random draws of the task generators: cheap, and equal on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

__all__ = ["Dice"]

_T = TypeVar("_T")


class Dice:
    """Cheap integers from a generator's raw words, whose stream NumPy promises to keep.

    (It does not promise that for the methods of ``Generator``, and a call to them takes 20 times as
    long as a draw here.)
    """

    __slots__ = ("_bits", "_words")

    def __init__(self, rng: np.random.Generator) -> None:
        self._bits = rng.bit_generator
        self._words: list[int] = []

    def below(self, n: int) -> int:
        """Return an integer in [0, n), n < 2**20; the bias is below 2**-12."""
        if not self._words:
            self._words = self._bits.random_raw(64).tolist()
        return (self._words.pop() & 0xFFFFFFFF) * n >> 32

    def between(self, low: int, high: int) -> int:
        """Return an integer in [low, high]."""
        return low + self.below(high - low + 1)

    def chance(self, share: float) -> bool:
        """Return True with probability ``share``, exact to 2**-16."""
        return self.below(1 << 16) < share * (1 << 16)

    def pick(self, items: Sequence[_T]) -> _T:
        """Return one of the items."""
        return items[self.below(len(items))]

    def sample(self, items: list[_T], count: int) -> list[_T]:
        """Return ``count`` different items; shuffles ``items``."""
        last = len(items)
        for i in range(count):
            j = i + self.below(last - i)
            items[i], items[j] = items[j], items[i]
        return items[:count]
