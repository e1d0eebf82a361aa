"""Goals are drawn according to the chosen weights."""

from __future__ import annotations

import bisect
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from shops import GOAL

from creditrl.envs.webshop.tasks import ShopGoals, upstream_weights


def upstreams_draw(weights: list[float], number: float) -> int:
    """What ``random_idx`` of princeton-nlp/WebShop draws if ``random.random`` gives ``number``.

    ``random.uniform(0, total)`` is ``0 + (total - 0) * random.random()``.
    """
    ends = [0, *np.cumsum(weights).tolist()]
    place = 0 + (ends[-1] - 0) * number
    return min(bisect.bisect(ends, place), len(ends) - 2)


class Numbers:
    """A generator that returns given numbers."""

    def __init__(self, number: float) -> None:
        self.number = number

    def random(self) -> float:
        return self.number


def goals(weights: list[float], split: list[int] | None = None) -> ShopGoals:
    made = [replace(GOAL, weight=weight) for weight in weights]
    return ShopGoals(made, "small", "all", split, upstream_weights(np.array(weights)))


def test_upstream_draws_the_goal_after_the_one_its_weights_select() -> None:
    # Worked by hand: 0.1 falls to goal 0, 0.3 to goal 1, 0.6 to goal 2.
    weights = [0.1, 0.3, 0.6]
    np.testing.assert_allclose(upstream_weights(np.array(weights)), [0.0, 0.1, 0.9])
    np.testing.assert_allclose(upstream_weights(np.ones(5)), [0, 1, 1, 1, 2])
    np.testing.assert_allclose(upstream_weights(np.array([0.3, 0.2])), [0.0, 0.5])
    np.testing.assert_allclose(upstream_weights(np.array([0.3])), [0.3])


@pytest.mark.parametrize("size", [1, 2, 3, 50])
@pytest.mark.parametrize("kind", ["equal", "any", "far apart", "some are 0"])
def test_equal_random_numbers_draw_upstreams_goals(size: int, kind: str) -> None:
    dice = random.Random(f"{size} {kind}")
    for _ in range(20):
        weights = [dice.random() + 1e-3 for _ in range(size)]
        if kind == "equal":
            weights = [1.0] * size
        elif kind == "far apart":
            weights = [weight ** dice.choice([1, 9]) for weight in weights]
        elif kind == "some are 0":
            weights = [weight * (i % 3 != 1) for i, weight in enumerate(weights)]
        tasks = goals(weights)
        numbers = [0.0, 1 - 2**-53, *(dice.random() for _ in range(100))]
        if kind == "equal":  # also the bounds between two goals
            numbers += [i / size for i in range(size)]
        drawn: list[Any] = [tasks.draw(Numbers(n)) for n in numbers]  # type: ignore[arg-type]
        assert drawn == [upstreams_draw(weights, n) for n in numbers]
        assert size == 1 or 0 not in drawn


def test_a_split_draws_with_upstreams_probabilities_given_the_split() -> None:
    weights = [0.1, 0.2, 0.3, 0.4, 0.5]
    dice, split = random.Random(0), [0, 2, 4]
    drawn = [upstreams_draw(weights, dice.random()) for _ in range(60_000)]
    inside = [split.index(i) for i in drawn if i in split]
    shares = np.bincount(inside, minlength=3) / len(inside)
    tasks, rng = goals(weights, split), np.random.default_rng(0)
    ours = np.bincount([tasks.draw(rng) for _ in range(60_000)], minlength=3) / 60_000
    np.testing.assert_allclose(shares, np.array([0, 0.2, 0.9]) / 1.1, atol=0.01)
    np.testing.assert_allclose(ours, shares, atol=0.02)  # 4 standard errors are 0.008
