"""95 % intervals of shares, means and paired differences, without SciPy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from creditrl.types import FloatArray

__all__ = [
    "Estimate",
    "bootstrap_means",
    "bootstrap_p",
    "bootstrap_weights",
    "holm",
    "mean_interval",
    "paired_interval",
    "student_quantile",
    "wilson_interval",
]

CONFIDENCE = 0.95
BOOTSTRAP_DRAWS = 10_000
_EXACT_UP_TO = 200
"""Degrees of freedom up to which Student's distribution is summed exactly."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value estimated from ``n`` observations, and its interval."""

    value: float
    """The estimate; NaN without observations."""
    low: float
    """Lower end; NaN if no interval can be given (a mean of fewer than two observations)."""
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def wilson_interval(successes: int, n: int, confidence: float = CONFIDENCE) -> Estimate:
    """Return a share and its Wilson score interval.

    With z the normal quantile and p = successes / n:
    ``(p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)``.

    Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference",
    JASA 22, without continuity correction; recommended by Brown, Cai and DasGupta 2001.
    """
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, 0)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # At 0 and n one end is exactly 0 or 1; rounding would leave it about 1e-17 off.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return Estimate(share, low, high, n)


def mean_interval(
    values: Sequence[float],
    confidence: float = CONFIDENCE,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Estimate:
    """Return a mean and its Student t interval, ``mean -+ t_{n-1} s / sqrt(n)``.

    Source: Student 1908.

    Args:
        values: the observations.
        confidence: of the interval.
        bounds: smallest and largest possible value of the quantity. The interval is cut there,
            which does not lower its confidence: no mean lies beyond.
    """
    n = len(values)
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, 0)
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, math.nan, math.nan, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    half = student_quantile(0.5 + confidence / 2, n - 1) * math.sqrt(variance / n)
    # A mean that is itself beyond the bounds stays in its interval.
    least, most = min(bounds[0], mean), max(bounds[1], mean)
    return Estimate(mean, max(mean - half, least), min(mean + half, most), n)


def paired_interval(
    difference_KS: FloatArray,
    *,
    draws: int = BOOTSTRAP_DRAWS,
    seed: int = 0,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Return the mean of paired differences and its bootstrap interval over tasks and seeds.

    Every draw takes K tasks and S seeds with replacement, independently of each other, and averages
    the entries of those rows and columns; the interval is given by the draws' quantiles (Efron
    1979, the percentile method). With one seed it is the paired bootstrap over tasks, and says
    nothing about other seeds.

    Args:
        difference_KS: one value minus the other, K tasks x S seeds; [K] means one seed.
        draws: number of bootstrap samples.
        seed: seed of the draws: equal arguments give equal intervals.
        confidence: probability mass of the interval.
    """
    table_KS = np.asarray(difference_KS, dtype=np.float64)
    if table_KS.ndim == 1:
        table_KS = table_KS[:, None]
    tasks, seeds = table_KS.shape
    if not table_KS.size:
        return Estimate(math.nan, math.nan, math.nan, 0)
    mean = float(table_KS.mean())
    if tasks < 2:
        return Estimate(mean, math.nan, math.nan, tasks)
    tail = (1 - confidence) / 2
    low, high = np.quantile(bootstrap_means(table_KS, draws, seed), [tail, 1 - tail])
    return Estimate(mean, float(low), float(high), tasks)


def bootstrap_weights(
    tasks: int, seeds: int, draws: int, seed: int
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield the weights of tasks, [D, K], and of seeds, [D, S], of bootstrap samples.

    Each row sums to 1. Equal arguments give equal weights, so statistics of several tables are
    paired. They come in blocks of at most 1,000: 10,000 samples of 500 tasks at once would take 40
    MB.
    """
    rng = np.random.default_rng(seed)
    for start in range(0, draws, 1000):
        size = min(1000, draws - start)
        task_DK = rng.multinomial(tasks, np.full(tasks, 1 / tasks), size=size) / tasks
        seed_DS = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=size) / seeds
        yield task_DK, seed_DS


def bootstrap_means(
    table_KS: FloatArray, draws: int = BOOTSTRAP_DRAWS, seed: int = 0
) -> FloatArray:
    """Return the means of bootstrap samples over tasks and seeds; see :func:`paired_interval`."""
    tasks, seeds = table_KS.shape
    blocks = bootstrap_weights(tasks, seeds, draws, seed)
    return np.concatenate(
        [np.einsum("ds,ds->d", task_DK @ table_KS, seed_DS) for task_DK, seed_DS in blocks]
    )


def bootstrap_p(sample_D: FloatArray, null: float = 0.0) -> float:
    """Return the two-sided p-value of a null value from bootstrap draws of a statistic.

    It is twice the smaller share of draws on one side of the null value; draws equal to it count on
    both sides. One more draw is counted on each side, so no p is 0 (Davison and Hinkley 1997,
    4.11). NaN without draws.
    """
    draws = len(sample_D)
    if not draws:
        return math.nan
    below, above = int((sample_D <= null).sum()), int((sample_D >= null).sum())
    return min(1.0, 2 * (1 + min(below, above)) / (1 + draws))


def holm(p: Sequence[float]) -> tuple[float, ...]:
    """Return p-values adjusted for their number; NaN means no test and stays NaN.

    The i-th smallest of m becomes ``max over j <= i of min(1, (m - j + 1) p_j)``.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    tests = sorted((value, at) for at, value in enumerate(p) if not math.isnan(value))
    adjusted = list(p)
    largest = 0.0
    for rank, (value, at) in enumerate(tests):
        largest = max(largest, min(1.0, (len(tests) - rank) * value))
        adjusted[at] = largest
    return tuple(adjusted)


def student_quantile(p: float, degrees: int) -> float:
    """Return the quantile of Student's t distribution at ``p``, 0.5 <= p < 1.

    Source: Abramowitz and Stegun 1964, 26.7.3 and 26.7.4 (finite sums for the distribution,
    inverted by bisection) up to 200 degrees of freedom, beyond them the expansion 26.7.5 (error
    below 1e-8).
    """
    if degrees > _EXACT_UP_TO:
        x, v = NormalDist().inv_cdf(p), float(degrees)
        g1 = (x**3 + x) / 4
        g2 = (5 * x**5 + 16 * x**3 + 3 * x) / 96
        g3 = (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384
        return x + g1 / v + g2 / v**2 + g3 / v**3
    low, high = 0.0, 2.0
    while _student_cdf(high, degrees) < p:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if _student_cdf(middle, degrees) < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _student_cdf(t: float, degrees: int) -> float:
    """Return P(T <= t) for t >= 0."""
    angle = math.atan2(t, math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    # A(t | v) = P(|T| <= t); the sums run over even (v even) or odd (v odd) powers of the cosine.
    if degrees == 1:
        between = 2 * angle / math.pi
    elif degrees % 2:
        term = total = cosine
        for k in range(2, degrees - 1, 2):
            term *= k / (k + 1) * cosine * cosine
            total += term
        between = 2 / math.pi * (angle + sine * total)
    else:
        term = total = 1.0
        for k in range(1, degrees - 1, 2):
            term *= k / (k + 1) * cosine * cosine
            total += term
        between = sine * total
    return 0.5 + between / 2
