"""Random draws of the task generators: cheap, and equal on every machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TypeVar

import numpy as np

__all__ = ["Dice"]

_T = TypeVar("_T")


class Dice:
    """Cheap integers from a generator's raw words, whose stream NumPy promises to keep.

    (It does not promise that for the methods of ``Generator``, and a call to them takes 20 times as
    long as a draw here.)
    """

    __slots__ = ("_words",)

    def __init__(self, rng: np.random.Generator) -> None:
        self._words = chain.from_iterable(_blocks(rng.bit_generator))

    def below(self, n: int) -> int:
        """Return an integer in [0, n), n < 2**20; the bias is below 2**-12."""
        return (next(self._words) & 0xFFFFFFFF) * n >> 32

    def between(self, low: int, high: int) -> int:
        """Return an integer in [low, high]."""
        return low + ((next(self._words) & 0xFFFFFFFF) * (high - low + 1) >> 32)

    def chance(self, share: float) -> bool:
        """Return True with probability ``share``, exact to 2**-16."""
        return (next(self._words) & 0xFFFFFFFF) >> 16 < share * (1 << 16)

    def pick(self, items: Sequence[_T]) -> _T:
        """Return one of the items."""
        return items[self.below(len(items))]

    def sample(self, items: list[_T], count: int) -> list[_T]:
        """Return ``count`` different items; shuffles ``items``."""
        last = len(items)
        for i, word in zip(range(count), self._words, strict=False):
            j = i + ((word & 0xFFFFFFFF) * (last - i) >> 32)
            items[i], items[j] = items[j], items[i]
        return items[:count]


def _blocks(bits: np.random.BitGenerator) -> Iterator[Iterator[int]]:
    """Yield the raw words, 64 at a time, last first."""
    while True:
        yield reversed(bits.random_raw(64).tolist())
