"""Hand-made finished runs, for tests that compare them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from creditrl.trainers.after.finished import FinishedRun, Validation


def _finished(
    successes: Sequence[Sequence[float]],
    turns: Sequence[int] = (0, 50, 100),
    weights: str = "w",
    seconds: float = 10.0,
) -> FinishedRun:
    """Return a run whose evaluations had these outcomes of tasks."""
    validations = [
        Validation(t, seconds * i, np.array(row, np.float32), np.array(row, np.float32) / 2)
        for i, (t, row) in enumerate(zip(turns, successes, strict=True))
    ]
    return FinishedRun(
        folder=Path("run"),
        before={},
        after={},
        levels=(),
        turns=turns[-1],
        updates=4,
        seconds={"train": seconds},
        cpu_seconds=50.0,
        start_weights=weights,
        cpu_parts={"models": 3.0, "update": 7.0},
        validations=validations,
        metrics={},
    )


@pytest.fixture
def finished() -> Callable[..., FinishedRun]:
    """Return a function that makes a run with given outcomes of tasks."""
    return _finished
