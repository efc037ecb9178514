"""Statistics of a few seeds: means, paired differences, tests, intervals.

A value that is not finite is never dropped: the mean is NaN, without an interval and a p-value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

DRAWS = 9999
"""Number of random sign flips, if there are too many to enumerate."""
ROUNDING = 1e-12
"""Share of the largest value that counts as zero: the rounding of sums and differences."""


Interval = tuple[float, float]
"""Low and high end; an infinite end is open."""


class Paired(NamedTuple):
    """Differences within pairs: their mean, its 95 % t-interval, and the p-value of the sign-flip test."""

    difference: float
    std: float | None
    interval: Interval | None
    p: float | None
    n: int


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and the standard deviation over n - 1, None for fewer than two values.

    The mean is NaN without values or if one is not finite.
    """
    n = len(values)
    if not n or not all(map(math.isfinite, values)):
        return math.nan, math.nan if n > 1 else None
    mean = math.fsum(values) / n
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (n - 1)) if n > 1 else None


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Return the 95 % t-interval of a mean; None for one value, equal values, or one that is not finite."""
    n, (mean, std) = len(values), spread(values)
    if not std or math.isnan(mean):
        return None
    low, high = stats.t.interval(0.95, n - 1, mean, std / math.sqrt(n))
    return float(low), float(high)


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Paired:
    """Return statistics of the differences ours - theirs, paired by seed.

    Pairing removes the effect that a seed has on both sides. The t-interval (Student 1908) assumes normal
    differences; the test does not. One pair has no test, and equal differences have no interval.
    """
    differences = [our - their for our, their in zip(ours, theirs, strict=True)]
    n, (mean, std) = len(differences), spread(differences)
    if math.isnan(mean) or n == 1:
        return Paired(mean, std, None, None, n)
    nothing = ROUNDING * max(map(abs, [*ours, *theirs]))
    interval = mean_interval(differences) if std is not None and std > nothing else None
    return Paired(mean, std, interval, sign_flip_p(differences, nothing), n)


def sign_flip_p(differences: Sequence[float], rounding: float = 0.0) -> float:
    """Return the two-sided p-value of the permutation test of paired samples (Fisher 1935).

    If neither side is better, each difference is equally likely with the other sign: p is the share of
    all 2ⁿ choices of signs whose mean is at least as far from 0. The test assumes nothing else. It is
    exact up to 13 pairs; for more pairs, `DRAWS` choices are drawn. See `smallest_p`. Differences up to
    `rounding` count as zero.
    """
    found = np.asarray(differences, dtype=np.float64)
    unit = max(rounding, ROUNDING * float(np.abs(found).max()))
    if len(found) == 1 or unit == 0:
        return 1.0
    test = stats.permutation_test(
        (np.round(found / unit),),  # whole numbers, so that no rounding of a sum breaks a tie
        np.sum,
        permutation_type="samples",
        n_resamples=DRAWS,
        rng=np.random.default_rng(0),
    )
    return float(test.pvalue)


def smallest_p(n: int) -> float:
    """Return the smallest two-sided p of the sign-flip test of n pairs: 2 / 2ⁿ, or 2 / (`DRAWS` + 1)."""
    return 2.0 ** (1 - n) if 2**n <= DRAWS else 2 / (DRAWS + 1)


def percentiles(values: NDArray[np.float64]) -> Interval:
    """Return the percentile bootstrap interval (Efron 1979): the middle 95 % of resampled values.

    Its ends are values without interpolation, so an infinite value is an open end.
    """
    low, high = np.quantile(values, (0.025, 0.975), method="inverted_cdf")
    return float(low), float(high)


def two_sided_p(resampled: NDArray[np.float64], found: float) -> float:
    """Return the two-sided p-value of a difference from its bootstrap (Koehn 2004, shifted).

    The resampled differences, shifted to a mean of 0, represent equally good systems: p = (c + 1) /
    (draws + 1), where c of them are at least as far from 0 as the measured one. sacreBLEU takes the
    absolute value before the shift, so for a clear difference it counts only one side, and its p is half
    of this one.
    """
    moved = np.abs(resampled - resampled.mean())
    count = np.sum(moved >= abs(found) - ROUNDING * max(abs(found), 1.0))
    return float((count + 1) / (len(resampled) + 1))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted for multiple tests (Holm 1979); None is no test and is not counted.

    The k-th of m in ascending order becomes the maximum of (m - j + 1) · p_j over j ≤ k, at most 1. This
    bounds the chance of one false positive, whatever the dependence of the tests.
    """
    order = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, (p, place) in enumerate(order):
        least = max(least, min(1.0, (len(order) - rank) * p))
        adjusted[place] = least
    return adjusted
