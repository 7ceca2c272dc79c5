"""The statistics of measured times: robust, and without assumptions about their distribution."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RatioInterval:
    """The median of ratios, and an interval that holds the true median with `confidence`.

    `confidence` is the probability that the interval really has: at least what was asked for, or,
    with too few rounds (fewer than six for 95 %), what the whole range of the ratios gives:
    1 - 2 ** (1 - rounds).
    """

    median: float
    low: float
    high: float
    confidence: float
    rounds: int


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two in the middle. Raises ValueError when empty."""
    if not values:
        raise ValueError("no values to take the median of")
    return statistics.median(values)


def relative_spread(samples: Sequence[float]) -> float:
    """Half the interquartile range over the median, without unit; 0 for a single sample.

    Quartiles are interpolated linearly between the sorted samples (the inclusive method of Python's
    `statistics.quantiles`). One wild sample among many does not change it. 0 where the median is
    not positive, as no time is.
    """
    if len(samples) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / 2 / middle if middle > 0 else 0.0


def ratio_interval(pairs: Sequence[tuple[float, float]], confidence: float = 0.95) -> RatioInterval:
    """How much slower the first of each pair is than the second: the median of first / second.

    A pair is what two settings took in one round, so that a drift of the machine that both see
    cancels out. The interval lies between two order statistics of the ratios: with n rounds the
    number of ratios below the true median is binomial (n, 1/2), whatever their distribution, so
    [r(k), r(n+1-k)] holds it with probability 1 - 2 P(B < k) (David and Nagaraja, Order Statistics,
    3rd edition 2003, section 7.1). The largest such k is taken that still gives `confidence`. A
    percentile bootstrap of the median covers less than it says where rounds are few, and needs a
    seed; this one is exact when rounds are independent.

    Raises ValueError when there is no pair, a time is not positive, or `confidence` is not between
    0 and 1.
    """
    if not pairs:
        raise ValueError("no rounds to compare")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} is not between 0 and 1")
    if not all(first > 0 and second > 0 for first, second in pairs):
        raise ValueError("times must be positive")
    ratios = sorted(first / second for first, second in pairs)
    rank, level = _rank(len(ratios), confidence)
    return RatioInterval(
        median=statistics.median(ratios),
        low=ratios[rank - 1],
        high=ratios[-rank],
        confidence=level,
        rounds=len(ratios),
    )


def _rank(rounds: int, confidence: float) -> tuple[int, float]:
    """The largest k of `ratio_interval`, and the confidence that it gives."""
    outcomes = 2**rounds  # integers throughout: a float overflows from 1,024 rounds on
    below = ways = 1  # outcomes that put fewer than k ratios below the median; exactly k - 1
    rank, level = 1, 1 - 2 / outcomes
    for k in range(2, rounds // 2 + 1):
        ways = ways * (rounds - k + 2) // (k - 1)
        below += ways
        narrower = (outcomes - 2 * below) / outcomes
        if narrower < confidence:
            break
        rank, level = k, narrower
    return rank, level
