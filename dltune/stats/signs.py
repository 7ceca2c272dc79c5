"""Statistics of the signs of differences, which fall like a fair coin for any distribution of the
times: the interval of a median for a number of rounds fixed in advance, and the sign test."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dltune.stats.interval import Interval, between_ranks, require


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return the interval of the median of independent values, between two of them, for one check.

    With n values the number of those below the true median is binomial (n, 1/2), whatever their
    distribution, so [v(k), v(n+1-k)] of the sorted values holds it with probability
    1 - 2 P(B < k) (David and Nagaraja, Order Statistics, 3rd edition 2003, section 7.1). The
    largest such k is taken that still gives `confidence`. A percentile bootstrap of the median
    covers less than it says where values are few, and needs a seed; this one is exact.

    The interval's `confidence` is the probability that it really has: at least the requested one,
    or, with too few values (fewer than six for 95 %), the confidence of their whole range:
    1 - 2 ** (1 - n).

    Raises ValueError when there is no value, a value is not a number, or `confidence` is not
    between 0 and 1.
    """
    require(values, confidence)
    rank, level = _rank(len(values), confidence)
    return between_ranks(sorted(values), rank, level, len(values))


def paired_ratio(pairs: Sequence[tuple[float, float]], confidence: float = 0.95) -> Interval:
    """Return the slowdown of the first of each pair relative to the second: the `median_interval`
    of first / second.

    A pair holds the times of two settings in one round, so that a drift of the machine that affects
    both cancels out. Raises ValueError when there is no pair, a time is not positive, or
    `confidence` is not between 0 and 1.
    """
    if not all(first > 0 and second > 0 for first, second in pairs):
        raise ValueError("times must be positive")
    return median_interval([first / second for first, second in pairs], confidence)


def sign_test(rounds: int, beyond: int) -> float:
    """Return the probability that at least `beyond` of `rounds` are on one side, if both sides are
    equally likely."""
    return float(sum(math.comb(rounds, k) for k in range(beyond, rounds + 1)) / 2**rounds)


def _rank(rounds: int, confidence: float) -> tuple[int, float]:
    """Return the largest k of `median_interval`, and the confidence that it gives."""
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
