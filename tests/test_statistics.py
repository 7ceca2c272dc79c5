"""Robust statistics: their definitions, and that the interval covers what it says."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.statistics import median, ratio_interval, relative_spread

times = st.floats(1e-6, 1e3)
rounds = st.lists(st.tuples(times, times), min_size=1, max_size=60)


def test_median_of_odd_and_even_counts() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5


def test_median_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        median([])


@given(rounds)
def test_the_interval_holds_the_median_of_the_rounds(pairs: list[tuple[float, float]]) -> None:
    found = ratio_interval(pairs)
    assert found.low <= found.median <= found.high
    assert found.rounds == len(pairs)
    assert 0 <= found.confidence < 1


@given(rounds, st.randoms(use_true_random=False))
def test_the_order_of_rounds_does_not_matter(
    pairs: list[tuple[float, float]], order: random.Random
) -> None:
    shuffled = order.sample(pairs, len(pairs))
    assert ratio_interval(shuffled) == ratio_interval(pairs)


@given(rounds, st.data())
def test_a_factor_that_a_round_shares_cancels(
    pairs: list[tuple[float, float]], data: st.DataObject
) -> None:
    factors = data.draw(
        st.lists(st.floats(0.1, 10), min_size=len(pairs), max_size=len(pairs)), label="factors"
    )
    drifting = [(a * f, b * f) for (a, b), f in zip(pairs, factors, strict=True)]
    steady, drifted = ratio_interval(pairs), ratio_interval(drifting)
    assert drifted.low == pytest.approx(steady.low)
    assert drifted.median == pytest.approx(steady.median)
    assert drifted.high == pytest.approx(steady.high)


@given(rounds)
def test_swapping_the_settings_inverts_the_interval(pairs: list[tuple[float, float]]) -> None:
    found, swapped = ratio_interval(pairs), ratio_interval([(b, a) for a, b in pairs])
    assert swapped.low == pytest.approx(1 / found.high)
    assert swapped.high == pytest.approx(1 / found.low)


@given(rounds, st.floats(0.5, 0.9), st.floats(0.9, 0.99))
def test_more_confidence_is_never_narrower(
    pairs: list[tuple[float, float]], less: float, more: float
) -> None:
    narrow, wide = ratio_interval(pairs, less), ratio_interval(pairs, more)
    assert wide.low <= narrow.low
    assert wide.high >= narrow.high


@pytest.mark.parametrize("count", range(1, 15))
def test_confidence_is_the_share_of_all_outcomes(count: int) -> None:
    """Oracle: every way in which ratios can fall below (0) or above (2) a true median of 1."""
    covered = total = 0
    for outcome in itertools.product((0.5, 2.0), repeat=count):
        # distinct values, so that a rank is a place between two ratios
        ratios = [value * (1 + 1e-9 * place) for place, value in enumerate(outcome)]
        found = ratio_interval([(ratio, 1.0) for ratio in ratios])
        covered += found.low < 1 < found.high
        total += 1
    assert found.confidence == covered / total
    assert found.confidence >= 0.95 or (found.low, found.high) == (min(ratios), max(ratios))


def test_few_rounds_say_so() -> None:
    assert ratio_interval([(2.0, 1.0)]).confidence == 0.0
    assert ratio_interval([(2.0, 1.0)] * 5).confidence == 0.9375
    assert ratio_interval([(2.0, 1.0)] * 6).confidence == 0.96875


def test_thousands_of_rounds_do_not_overflow() -> None:
    found = ratio_interval([(1.0 + i / 1e4, 1.0) for i in range(5000)])
    assert 0.95 <= found.confidence < 0.952
    assert found.high - found.low < 0.015


@pytest.mark.parametrize("count", [5, 10, 30, 300])
@pytest.mark.parametrize("noise", ["lognormal", "bursts"])
def test_the_interval_covers_the_true_ratio(count: int, noise: str) -> None:
    """Two settings 7 % apart on a machine whose speed wanders by half and more."""
    truth = 1.07
    rng = random.Random(f"{count} {noise}")

    def one_turn(speed: float) -> float:
        if noise == "bursts" and rng.random() < 0.2:  # another tenant wakes up
            return speed * rng.uniform(1.2, 3.0)
        return speed * rng.lognormvariate(0, 0.05)

    experiments = 300 if count == 300 else 2000
    covered = 0
    for _ in range(experiments):
        speed = 1.0
        pairs = []
        for _ in range(count):
            speed = min(2.0, max(0.5, speed * rng.lognormvariate(0, 0.1)))
            pairs.append((truth * one_turn(speed), one_turn(speed)))
        found = ratio_interval(pairs)
        covered += found.low <= truth <= found.high
    assert covered / experiments >= 0.93


@pytest.mark.parametrize(
    ("pairs", "confidence", "fault"),
    [
        ([], 0.95, "no rounds"),
        ([(1.0, 0.0)], 0.95, "positive"),
        ([(-1.0, 1.0)], 0.95, "positive"),
        ([(1.0, 1.0)], 0.0, "between 0 and 1"),
        ([(1.0, 1.0)], 1.0, "between 0 and 1"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    pairs: list[tuple[float, float]], confidence: float, fault: str
) -> None:
    with pytest.raises(ValueError, match=fault):
        ratio_interval(pairs, confidence)


def test_the_spread_is_half_the_interquartile_range_over_the_median() -> None:
    assert relative_spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(1 / 3)  # quartiles 2 and 4
    assert relative_spread([2.0, 2.0, 2.0]) == 0.0


@pytest.mark.parametrize("samples", [[], [7.0], [0.0, 0.0]])
def test_there_is_no_spread_where_nothing_can_lie_apart(samples: list[float]) -> None:
    assert relative_spread(samples) == 0.0


@given(st.lists(times, min_size=1), st.floats(1e-3, 1e3))
def test_the_spread_does_not_depend_on_the_unit_or_the_order(
    samples: list[float], unit: float
) -> None:
    expected = pytest.approx(relative_spread(samples), rel=1e-6, abs=1e-9)
    assert relative_spread([sample * unit for sample in samples]) == expected
    assert relative_spread(samples[::-1]) == expected


def test_the_spread_ignores_one_wild_sample() -> None:
    assert relative_spread([1.0] * 20 + [1000.0]) == 0.0
