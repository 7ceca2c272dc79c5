"""The bets: against their definition, and how often they are wrong when looked at every round."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.stats import (
    anytime_median,
    anytime_ratio,
    evidence,
    least_rounds,
    log_evidence,
    median_interval,
    rank,
    stake,
)

RATIOS = st.lists(st.floats(0.5, 2.0), min_size=1, max_size=40)


def integral(rounds: int, beyond: int, parts: int = 20_000) -> float:
    """M(n, k) as it is defined, by the midpoint rule."""
    width = 0.5 / parts
    return sum(
        2 * width * (2 * p) ** beyond * (2 * (1 - p)) ** (rounds - beyond)
        for p in (0.5 + (i + 0.5) * width for i in range(parts))
    )


@pytest.mark.parametrize(("rounds", "beyond"), [(1, 0), (1, 1), (5, 3), (9, 9), (30, 21), (30, 2)])
def test_evidence_is_the_integral(rounds: int, beyond: int) -> None:
    assert float(evidence(rounds, beyond)) == pytest.approx(integral(rounds, beyond), rel=1e-4)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_its_logarithm(both: tuple[int, int]) -> None:
    assert math.exp(log_evidence(*both)) == pytest.approx(float(evidence(*both)))


def test_more_rounds_than_a_float_can_hold_the_evidence_of() -> None:
    with pytest.raises(OverflowError):
        float(evidence(1500, 1500))
    found = anytime_ratio([1.001, 1.002, 1.0] * 500, 0.95)
    assert 0.999 <= found.low <= found.median <= found.high <= 1.002
    assert rank(3000, 0.95) == 1400


def test_ratios_over_nothing() -> None:
    """One is no evidence; as many as decide any other ratio are."""
    for rounds in (1, least_rounds(0.95, paired=True) - 1):
        assert anytime_ratio([math.inf] * rounds, 0.95).low == -math.inf
    enough = anytime_ratio([math.inf] * least_rounds(0.95, paired=True), 0.95)
    assert (enough.low, enough.high) == (math.inf, math.inf)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_with_fewer_rounds_there_is_no_bound(confidence: float) -> None:
    least = least_rounds(confidence, paired=True)
    assert anytime_ratio([1.0] * least, confidence).high < math.inf
    alone = least_rounds(confidence, paired=False)
    assert anytime_median([1.0] * alone, confidence).high == 1.0
    for fewer in range(1, least):
        assert anytime_ratio([1.0] * fewer, confidence).high == math.inf
    for fewer in range(1, alone):
        assert anytime_median([1.0] * fewer, confidence).high == math.inf


@given(st.integers(0, 60))
def test_a_fair_coin_wins_nothing_on_average(rounds: int) -> None:
    """The mean over all outcomes is exactly 1: a martingale from 1."""
    mean = sum(math.comb(rounds, k) * evidence(rounds, k) for k in range(rounds + 1))
    assert mean / 2**rounds == Fraction(1)


def test_a_round_more_is_a_martingale_step() -> None:
    for n in range(20):
        for k in range(n + 1):
            assert (evidence(n + 1, k) + evidence(n + 1, k + 1)) / 2 == evidence(n, k)


def test_unanimous_rounds_needed() -> None:
    assert rank(8, 0.98) is None
    assert rank(9, 0.98) == 1


@given(st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=9))
def test_mirrored_outcomes_win_nothing_on_average(distances: list[float]) -> None:
    """With the distances fixed and every side drawn by lot, the stake stays 1 on average."""
    signs = range(2 ** len(distances))
    stakes = [
        stake([-x if sides >> i & 1 else x for i, x in enumerate(distances)]) for sides in signs
    ]
    # a distance of 0 is on neither side: nothing is won there, and something may be lost
    assert sum(stakes) / len(stakes) <= 1 + 1e-9
    if all(distances):
        assert sum(stakes) / len(stakes) == pytest.approx(1, rel=1e-9)


@given(RATIOS, st.floats(0.8, 0.99))
def test_intervals_hold_the_middle_and_widen_with_confidence(
    ratios: list[float], confidence: float
) -> None:
    for interval in (anytime_ratio, anytime_median):
        found = interval(ratios, confidence)
        wider = interval(ratios, (1 + confidence) / 2)
        assert wider.low <= found.low + 1e-6
        assert found.low <= found.median * (1 + 1e-4)
        assert found.median <= found.high * (1 + 1e-4)
        assert found.high <= wider.high + 1e-4 * max(1, found.high if found.high < 99 else 1)


@given(RATIOS, st.floats(0.5, 2.0))
def test_a_ratio_s_interval_moves_with_a_factor_and_turns_with_the_sides(
    ratios: list[float], factor: float
) -> None:
    found = anytime_ratio(ratios, 0.9)
    moved = anytime_ratio([r * factor for r in ratios], 0.9)
    assert moved.low == pytest.approx(found.low * factor, rel=1e-3)
    assert moved.high == pytest.approx(found.high * factor, rel=1e-3)
    turned = anytime_ratio([1 / r for r in ratios], 0.9)
    expected = 1 / found.high if found.high < math.inf else -math.inf
    assert turned.low == pytest.approx(expected, rel=1e-3)


def test_ratios_of_nothing_are_held() -> None:
    assert anytime_ratio([math.inf] * 20, 0.9).median == math.inf
    assert anytime_ratio([0.0] * 5 + [1.0] * 20 + [math.inf] * 5, 0.9).median == 1.0


@pytest.mark.parametrize("interval", [anytime_ratio, anytime_median])
@pytest.mark.parametrize("values", [[], [1.0, math.nan]])
def test_what_is_no_number_is_refused(interval, values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"no rounds|not a number"):
        interval(values, 0.9)


def alarms(decide, trials: int, rounds: int) -> float:
    """How often `decide` raises an alarm at some look, with wild noise around a limit of 1."""
    lot = random.Random(7)
    found = 0
    for _ in range(trials):
        ratios: list[float] = []
        for _ in range(rounds):
            # one in ten is disturbed tenfold, either way
            spread = 0.3 if lot.random() < 0.1 else 0.03
            ratios.append(math.exp(lot.gauss(0.0, spread)))
            if decide(ratios):
                found += 1
                break
    return found / trials


def test_looking_every_round_inflates_nothing() -> None:
    """The true ratio stands exactly at the limit. With 90 % each side may err in 5 %; the standard
    error of the figure is below 1 %. An interval made for one look errs far more often."""
    assert alarms(lambda r: stake([math.log(x) for x in r]) >= 20, 600, 60) <= 0.05 + 0.02
    assert alarms(lambda r: anytime_median(r, 0.9).low > 1, 600, 60) <= 0.05 + 0.02
    peeked = alarms(lambda r: len(r) >= 5 and median_interval(r, 0.9).low > 1, 600, 60)
    assert peeked > 0.12
