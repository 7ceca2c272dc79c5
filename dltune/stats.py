"""Statistics of measured times: intervals of medians, ratios and means, a sign test, and summaries.

Every interval has the form of `Interval`, and `require` checks its values. There are three kinds:

- for a check after every round, with a decision as soon as possible: `anytime_median` and
  `anytime_ratio`;
- for one check after a number of rounds fixed in advance: `median_interval` and `paired_ratio`;
- for two groups of times that were not measured in pairs: `unpaired_ratio`.

`t_quantile` is Student's t distribution, for the mean of a few samples whose spread is uncertain
itself.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

from dltune.schemas.profile import Samples


@dataclass(frozen=True)
class Interval:
    """A median, and an interval that holds the true one with `confidence`.

    `low` and `high` are -infinity and infinity where the values are too few for a bound. `rounds`:
    of how many values (of all groups together) the median is.
    """

    median: float
    low: float
    high: float
    confidence: float
    rounds: int

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """Return low and high for documents: None where there is no bound."""
        low, high = (x if math.isfinite(x) else None for x in (self.low, self.high))
        return low, high


def between_ranks(
    ordered: Sequence[float], rank: int | None, confidence: float, rounds: int
) -> Interval:
    """Return the interval from the value of that rank to the value as far from the end; without
    bounds if there is no such rank."""
    return Interval(
        median=statistics.median(ordered),
        low=ordered[rank - 1] if rank else -math.inf,
        high=ordered[-rank] if rank else math.inf,
        confidence=confidence,
        rounds=rounds,
    )


def require(values: Sequence[float], confidence: float) -> None:
    """Raise ValueError when there is no value, a value is not a number, or `confidence` is not
    between 0 and 1."""
    if not values:
        raise ValueError("no rounds to judge")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    if any(math.isnan(value) for value in values):
        raise ValueError("a value is not a number")


# Intervals that remain valid when checked after every round (a confidence sequence): bets that a
# limit is exceeded.
#
# A gambler who begins with 1 and bets at every round cannot expect to win while the limit holds.
# The probability that the stake ever reaches 1/a, *after any round*, is then at most a (Ville,
# Étude critique de la notion de collectif, 1939). So a caller can check after each round and stop
# when decided; with an interval made for a fixed number of rounds, this inflates false alarms. An
# interval contains all limits that neither the bet "it is exceeded" nor the opposite bet has
# refuted.

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
    """Return M(n, k): the stake, begun with 1, after `beyond` (k) of `rounds` (n) fell where they
    were bet on.

    The bet assumes only that rounds are independent: a round is above the median with probability
    1/2. The fraction that is above is mixed uniformly (Robbins, Statistical Methods Related to the
    Law of the Iterated Logarithm, 1970; Howard and Ramdas, Sequential estimation of quantiles,
    2022):

        M(n, k) = int_{1/2}^{1} 2 (2p)^k (2 (1-p))^(n-k) dp = sum_{j<=k} C(n+1, j) / ((n+1) C(n, k))
    """
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

    It assumes only that the rounds are independent, and bets by `evidence`.

    Raises ValueError when there is no value, a value is not a number, or `confidence` is not
    between 0 and 1.
    """
    require(values, confidence)
    rounds = len(values)
    return between_ranks(sorted(values), rank(rounds, confidence), confidence, rounds)


def anytime_ratio(ratios: Sequence[float], confidence: float) -> Interval:
    """Return the interval of the centre of ratios whose logarithms are spread alike on both sides.

    The function assumes this in addition to independence. It is so when two measurements of the
    same code change places. Then the distance from the centre gives no information about the side,
    and the bet can stake more on distant values: after x it multiplies the stake by
    2 / (1 + exp(-2 t x)), for several t (`BOLDNESS`) and M(n, k) of `evidence` itself with equal
    shares. Far fewer rounds decide (docs/explanation/decisions/gate-verdict.md).

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


# Signs of differences, which fall like a fair coin for any distribution of the times: the interval
# of a median for a number of rounds fixed in advance, and the sign test


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


# Ratios of unpaired groups

# steps of `_ways` that may be taken, about a second; beyond, U is as good as normal
MOST_STEPS = 2_000_000


def unpaired_ratio(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return the interval of the typical b / a of two groups of times that were not measured in
    pairs; without bounds when the groups are too small for `confidence`.

    It is the shift of one sample against another (Hodges and Lehmann, 1963) on logarithms: the
    median of all ratios b / a, and the interval between two of them whose ranks follow from the
    exact distribution of Mann and Whitney's U. It makes no assumption about the noise except that
    both groups have noise of the same shape: then it holds the true ratio with `confidence`.

    Raises ValueError when a group is empty or a time is not positive.
    """
    if not a or not b:
        raise ValueError("no times to compare")
    if min(*a, *b) <= 0:
        raise ValueError("times must be positive")
    ratios = sorted(after / before for before in a for after in b)
    rank = _unpaired_rank(len(a), len(b), confidence)
    return between_ranks(ratios, rank, confidence, len(a) + len(b))


def _unpaired_rank(m: int, n: int, confidence: float) -> int:
    """The largest k for which [ratio k, ratio m*n+1-k] has the confidence; 0 when none has."""
    m, n = sorted((m, n))
    if m * m * n > MOST_STEPS:
        sigma = math.sqrt(m * n * (m + n + 1) / 12)
        within = NormalDist().inv_cdf((1 + confidence) / 2) * sigma
        return max(math.floor(m * n / 2 - within + 0.5), 0)  # U is a whole number
    ways = _ways(m, n)
    most = Fraction(1 - confidence) * sum(ways) / 2  # more than the largest float may hold
    below, rank = 0, 0
    for k, count in enumerate(ways, start=1):
        below += count  # outcomes with U < k
        if below > most:
            break
        rank = k
    return min(rank, m * n // 2)


@functools.cache
def _ways(m: int, n: int) -> tuple[int, ...]:
    """By U from 0 to m * n, in how many orders of m and n values it comes out."""
    # partitions of U into at most m parts of at most n: the Gaussian binomial coefficient
    found = [1] + [0] * (m * n)
    for factor in range(1, m + 1):
        for at in range(m * n, n + factor - 1, -1):
            found[at] -= found[at - n - factor]
        for at in range(factor, m * n + 1):
            found[at] += found[at - factor]
    return tuple(found)


# Student's t distribution

HIGHEST = 1 - 1e-9


@functools.lru_cache(maxsize=1024)
def t_quantile(level: float, freedom: int) -> float:
    """What Student's t with `freedom` degrees of freedom is at most with probability `level`.

    Right to 1e-6 of itself, to 100,000 degrees. By Newton's method on the angle whose tangent is
    t / sqrt(freedom): the probability rises with it ever more slowly, so that a step from below,
    where the normal quantile lies, never goes beyond.

    Raises ValueError when `level` is not from 0.5 to 1 - 1e-9 (nearer to 1 its own rounding would
    show), or `freedom` is below 1.
    """
    if not 0.5 <= level <= HIGHEST:
        raise ValueError(f"level must be between 0.5 and 1 - 1e-9, got {level}")
    if freedom < 1:
        raise ValueError(f"freedom must be at least 1, got {freedom}")
    density = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    angle, step = math.atan(NormalDist().inv_cdf(level) / math.sqrt(freedom)), math.inf
    while step > 1e-12 * angle:
        slope = 2 / math.sqrt(math.pi) * density * math.cos(angle) ** (freedom - 1)
        # 4e-16: the sum's rounding, which no step makes good
        step = max(0.0, 2 * level - 1 - _within(angle, freedom) - 4e-16) / slope
        angle += step
    return math.sqrt(freedom) * math.tan(angle)


def _within(angle: float, freedom: int) -> float:
    """The probability that |t| < sqrt(freedom) tan(angle): a finite sum (Abramowitz and Stegun,
    26.7.3 and 26.7.4)."""
    odd = freedom % 2
    term, total = math.cos(angle) ** odd, 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (power + 1) / (power + 2)
    central = total * math.sin(angle)
    return (angle + central) * 2 / math.pi if odd else central


# Summaries of a sample


def quantiles(values: Sequence[float], shares: Sequence[float]) -> list[float]:
    """The quantile at each share (0 to 1), interpolated linearly between the sorted values (the
    inclusive method of Python's `statistics.quantiles`). Raises ValueError without a value."""
    if not values:
        raise ValueError("no values to take quantiles of")
    ordered = sorted(values)
    last = len(ordered) - 1

    def at(share: float) -> float:
        below = math.floor(share * last)
        above = min(below + 1, last)
        return ordered[below] + (share * last - below) * (ordered[above] - ordered[below])

    return [at(share) for share in shares]


def relative_spread(samples: Sequence[float]) -> float:
    """Half the interquartile range over the median, without unit; 0 for a single sample.

    One wild sample among many does not change it. 0 where the median is not positive, as no time
    is.
    """
    if len(samples) < 2:
        return 0.0
    low, middle, high = quantiles(samples, (0.25, 0.5, 0.75))
    return (high - low) / 2 / middle if middle > 0 else 0.0


def summary(values: Sequence[float]) -> Samples:
    """Return the summary of times in seconds for documents. Raises ValueError without any."""
    return Samples(
        samples=len(values),
        min=min(values),
        median=statistics.median(values),
        spread=relative_spread(values),
    )
