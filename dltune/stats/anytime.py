"""Intervals that remain valid when checked after every round (a confidence sequence): bets that a
limit is exceeded.

A gambler who begins with 1 and bets at every round cannot expect to win while the limit holds. The
probability that the stake ever reaches 1/a, *after any round*, is then at most a (Ville, Étude
critique de la notion de collectif, 1939). So a caller can check after each round and stop when
decided; with an interval made for a fixed number of rounds, this inflates false alarms. An interval
contains all limits that neither the bet "it is exceeded" nor the opposite bet has refuted.

Two bets. `anytime_median` assumes only that rounds are independent: a round is above the median
with probability 1/2; the fraction that does is mixed uniformly (Robbins, Statistical Methods
Related to the Law of the Iterated Logarithm, 1970; Howard and Ramdas, Sequential estimation of
quantiles, 2022):

    M(n, k) = int_{1/2}^{1} 2 (2p)^k (2 (1-p))^(n-k) dp = sum_{j<=k} C(n+1, j) / ((n+1) C(n, k))

`anytime_ratio` assumes also that the logarithm of a ratio is spread alike on both sides of its
centre, as it is when two measurements of the same code change places. Then the distance from the
centre gives no information about the side, and the bet can stake more on distant values: after x it
multiplies the stake by 2 / (1 + exp(-2 t x)), for several t and M itself with equal shares. Far
fewer rounds decide (docs/explanation/decisions/gate-verdict.md).
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import statistics
from collections.abc import Sequence
from fractions import Fraction

from dltune.stats.interval import Interval, between_ranks, require

# how a stake grows with the distance: from ratios that differ by some 10 % of themselves from round
# to round (the first) to 1 % (the last); beyond that M(n, k) is as good
BOLDNESS = (8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
# of the logarithm of a bound
PRECISION = 1e-5
# bounds can be outside the range of the observed values, by no more than this
SPAN = 3.0
# the logarithm of a stake above which its exact value no longer matters
MOST = 700.0
_LOG_2 = math.log(2)


def evidence(rounds: int, beyond: int) -> Fraction:
    """M(n, k): the stake, begun with 1, after `beyond` of `rounds` fell where they were bet on."""
    if not 0 <= beyond <= rounds:
        raise ValueError(f"{beyond} of {rounds} rounds")
    ways, term = 0, 1  # C(n+1, j)
    for j in range(beyond + 1):
        ways += term
        term = term * (rounds + 1 - j) // (j + 1)
    return Fraction(ways, (rounds + 1) * math.comb(rounds, beyond))


@functools.lru_cache(maxsize=1 << 16)
def log_evidence(rounds: int, beyond: int) -> float:
    """Return the logarithm of M(n, k); M itself overflows a float from 1,034 rounds on."""
    found = evidence(rounds, beyond)
    return math.log(found.numerator) - math.log(found.denominator)


@functools.lru_cache(maxsize=4096)
def rank(rounds: int, confidence: float) -> int | None:
    """Return k such that [r(k), r(n+1-k)] of the sorted ratios r(1)..r(n) is the interval; None
    while no k is enough. Each side errs with probability at most (1 - confidence) / 2."""
    needed = math.log(2 / (1 - confidence))
    # r(k) is the bound of all m below it: n + 1 - k rounds are above such an m, and fewer for each
    # larger k
    enough = bisect.bisect_left(
        range(1, (rounds + 1) // 2 + 1),
        True,
        key=lambda k: log_evidence(rounds, rounds + 1 - k) < needed,
    )
    return enough or None


@functools.cache
def least_rounds(confidence: float, *, paired: bool) -> int:
    """Return the number of rounds below which no interval has a bound: for ratios measured together
    (`paired`), or for single values."""
    needed = 2 / (1 - confidence)
    # the boldest stake on rounds that are all far beyond
    return next(
        n
        for n in itertools.count(1)
        if (stake([math.inf] * n) >= needed if paired else rank(n, confidence))
    )


def anytime_median(values: Sequence[float], confidence: float) -> Interval:
    """Return the interval of the median of independent values, between two of them.

    Raises ValueError when there is no value, a value is not a number, or `confidence` is not
    between 0 and 1.
    """
    require(values, confidence)
    rounds = len(values)
    return between_ranks(sorted(values), rank(rounds, confidence), confidence, rounds)


def anytime_ratio(ratios: Sequence[float], confidence: float) -> Interval:
    """Return the interval of the centre of ratios whose logarithms are spread alike on both sides.

    A ratio can be 0 or infinite. Raises ValueError like `anytime_median`, and for a negative ratio.
    """
    require(ratios, confidence)
    if min(ratios) < 0:
        raise ValueError("a ratio is below 0")
    logs = [math.log(r) if r > 0 else -math.inf for r in ratios]
    needed = 2 / (1 - confidence)
    low = _bound(logs, needed)
    high = -_bound([-x for x in logs], needed)
    return Interval(
        median=statistics.median(ratios),
        low=math.exp(low) if low > -math.inf else low,
        high=math.exp(high),
        confidence=confidence,
        rounds=len(ratios),
    )


def stake(distances: Sequence[float]) -> float:
    """Return the stake, begun with 1, after betting that the centre of `distances` is above 0."""
    beyond = sum(x > 0 for x in distances)
    bets = [math.exp(min(log_evidence(len(distances), beyond), MOST))]
    bets += [bet(distances, boldness) for boldness in BOLDNESS]
    return statistics.fmean(bets)


def bet(distances: Sequence[float], boldness: float) -> float:
    """Return the stake, begun with 1, after a bet that uses the distances. If the signs of the
    distances are fair coins, it is 1 on average, whatever their sizes."""
    # log(2 / (1 + exp(-2 t x))), without overflow
    logarithm = sum(
        _LOG_2 - (math.log1p(math.exp(-2 * boldness * x)) if boldness * x > -300
                  else -2 * boldness * max(x, -1e6))
        for x in distances
    )  # fmt: skip
    return math.exp(min(logarithm, MOST))


def _bound(logs: Sequence[float], needed: float) -> float:
    """The largest m such that the bet "the centre is above m" has won `needed`; -inf: none yet."""
    finite = [x for x in logs if math.isfinite(x)]
    if not finite:
        return math.inf if min(logs) == math.inf and stake(logs) >= needed else -math.inf
    low, high = min(finite) - SPAN, max(finite)
    if stake([x - low for x in logs]) < needed:
        return -math.inf
    while high - low > PRECISION:
        middle = (low + high) / 2
        if stake([x - middle for x in logs]) >= needed:
            low = middle
        else:
            high = middle
    return low
