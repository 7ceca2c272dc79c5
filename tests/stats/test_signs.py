"""The interval of a median from signs: its definition, and that it covers what it says."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.stats import median_interval, paired_ratio, sign_test

times = st.floats(1e-6, 1e3)
rounds = st.lists(st.tuples(times, times), min_size=1, max_size=60)


@given(rounds)
def test_the_interval_holds_the_median_of_the_rounds(pairs: list[tuple[float, float]]) -> None:
    found = paired_ratio(pairs)
    assert found.low <= found.median <= found.high
    assert found.rounds == len(pairs)
    assert 0 <= found.confidence < 1


@given(rounds, st.randoms(use_true_random=False))
def test_the_order_of_rounds_does_not_matter(
    pairs: list[tuple[float, float]], order: random.Random
) -> None:
    shuffled = order.sample(pairs, len(pairs))
    assert paired_ratio(shuffled) == paired_ratio(pairs)


@given(rounds, st.data())
def test_a_factor_that_a_round_shares_cancels(
    pairs: list[tuple[float, float]], data: st.DataObject
) -> None:
    factors = data.draw(
        st.lists(st.floats(0.1, 10), min_size=len(pairs), max_size=len(pairs)), label="factors"
    )
    drifting = [(a * f, b * f) for (a, b), f in zip(pairs, factors, strict=True)]
    steady, drifted = paired_ratio(pairs), paired_ratio(drifting)
    assert drifted.low == pytest.approx(steady.low)
    assert drifted.median == pytest.approx(steady.median)
    assert drifted.high == pytest.approx(steady.high)


@given(rounds)
def test_swapping_the_settings_inverts_the_interval(pairs: list[tuple[float, float]]) -> None:
    found, swapped = paired_ratio(pairs), paired_ratio([(b, a) for a, b in pairs])
    assert swapped.low == pytest.approx(1 / found.high)
    assert swapped.high == pytest.approx(1 / found.low)


@given(rounds, st.floats(0.5, 0.9), st.floats(0.9, 0.99))
def test_more_confidence_is_never_narrower(
    pairs: list[tuple[float, float]], less: float, more: float
) -> None:
    narrow, wide = paired_ratio(pairs, less), paired_ratio(pairs, more)
    assert wide.low <= narrow.low
    assert wide.high >= narrow.high


@pytest.mark.parametrize("count", range(1, 15))
def test_confidence_is_the_share_of_all_outcomes(count: int) -> None:
    """Oracle: every way in which ratios can fall below (0) or above (2) a true median of 1."""
    covered = total = 0
    for outcome in itertools.product((0.5, 2.0), repeat=count):
        # distinct values, so that a rank is a place between two ratios
        ratios = [value * (1 + 1e-9 * place) for place, value in enumerate(outcome)]
        found = paired_ratio([(ratio, 1.0) for ratio in ratios])
        covered += found.low < 1 < found.high
        total += 1
    assert found.confidence == covered / total
    assert found.confidence >= 0.95 or (found.low, found.high) == (min(ratios), max(ratios))


def test_few_rounds_say_so() -> None:
    assert paired_ratio([(2.0, 1.0)]).confidence == 0.0
    assert paired_ratio([(2.0, 1.0)] * 5).confidence == 0.9375
    assert paired_ratio([(2.0, 1.0)] * 6).confidence == 0.96875


def test_thousands_of_rounds_do_not_overflow() -> None:
    found = paired_ratio([(1.0 + i / 1e4, 1.0) for i in range(5000)])
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
        found = paired_ratio(pairs)
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
        paired_ratio(pairs, confidence)


def test_an_interval_of_values_is_that_of_their_ratios_to_one() -> None:
    values = [1.0 + 0.1 * (k * 7 % 20) for k in range(20)]
    assert median_interval(values, 0.9) == paired_ratio([(value, 1.0) for value in values], 0.9)


@pytest.mark.parametrize("rounds", [1, 5, 12])
def test_the_sign_test_counts_the_outcomes(rounds: int) -> None:
    outcomes = [sum(sides) for sides in itertools.product((0, 1), repeat=rounds)]
    for beyond in range(rounds + 1):
        share = sum(outcome >= beyond for outcome in outcomes) / len(outcomes)
        assert sign_test(rounds, beyond) == share
