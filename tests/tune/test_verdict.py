"""When a trial is over, and what it then says."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dltune.tune.search import (
    CONFIDENCE,
    DECIDING,
    FINAL_CONFIDENCE,
    FIRST,
    LEAST,
    LOOKS,
    MARGIN,
    MOST,
    Judgement,
    agree,
    inverse,
    judge,
    measured,
    verdict_of,
)


def decided(effect: float, spread: float, seed: int = 0) -> tuple[str, int]:
    """The verdict on ratios around `effect`, looked at after every round, and the rounds."""
    lot = random.Random(seed)
    ratios: list[float] = []
    while True:
        ratios.append(effect * lot.lognormvariate(0, spread))
        if found := judge(ratios):
            return found.verdict, len(ratios)


def trial(ratios: Iterable[float], rounds: tuple[int, int] = (LOOKS, FIRST)) -> Judgement:
    """Rounds until the first verdict."""
    seen: list[float] = []
    for ratio in ratios:
        seen.append(ratio)
        if found := judge(seen, rounds=rounds):
            return found
    raise AssertionError(f"no verdict after {len(seen)} rounds")


@pytest.mark.parametrize(
    ("effect", "verdict"), [(0.7, "helps"), (0.85, "helps"), (1.2, "hurts"), (2.4, "hurts")]
)
def test_what_is_plain_takes_some_ten_rounds(effect: float, verdict: str) -> None:
    for seed in range(5):
        found, rounds = decided(effect, 0.02, seed)
        assert found == verdict
        assert DECIDING <= rounds <= DECIDING + 3


def test_nothing_is_said_before_the_least_rounds() -> None:
    assert judge([0.1] * (LEAST - 1)) is None


def test_a_setting_that_does_nothing_is_left_early() -> None:
    assert decided(1.0, 0.01) == ("no difference seen", LEAST)


@settings(max_examples=25)
@given(st.floats(0.9, 1.1), st.floats(0, 0.3), st.integers(0, 1000))
def test_a_trial_ends(effect: float, spread: float, seed: int) -> None:
    _, rounds = decided(effect, spread, seed)
    assert rounds <= FIRST


@given(st.lists(st.floats(0.5, 2.0), min_size=LEAST, max_size=LOOKS))
def test_helps_and_hurts_are_what_the_interval_says(ratios: list[float]) -> None:
    found, told = judge(ratios), measured(ratios)
    assert told is not None
    assert told.confidence == CONFIDENCE
    if found and found.verdict == "helps":
        assert told.high is not None
        assert told.high < 1
    if found and found.verdict == "hurts":
        assert told.low is not None
        assert told.low > 1
    if found and found.verdict in ("no difference seen", "not proven"):
        assert (told.low or 0.0) <= 1 <= (told.high or math.inf)


def test_a_loss_that_shows_but_is_not_proven_is_not_called_no_difference() -> None:
    uneven = [1.6, 1.02, 1.9, 1.01, 1.3, 1.04, 1.7, 0.98, 1.05, 1.2, 1.02, 1.5]
    assert trial(uneven) == Judgement("not proven", "slower in 11 of 12 rounds")
    told = measured(uneven)
    assert told is not None
    assert told.low is not None
    assert told.low < 1 < told.ratio
    assert verdict_of(uneven, FINAL_CONFIDENCE) == "not proven"


def test_a_gain_that_shows_but_is_not_proven_is_not_called_no_difference() -> None:
    gains = [0.9, 0.92, 1.4, 0.88, 0.95, 1.3, 0.9, 0.93, 1.2, 0.94]
    found = trial(gains * (MOST // len(gains)), (MOST, MOST))
    assert found == Judgement("not proven", "faster in 42 of 60 rounds")


def test_one_side_of_1_by_chance_or_by_little_is_no_difference() -> None:
    by_chance = [1.6, 0.8, 1.9, 0.9, 1.3, 1.04, 1.7, 0.7, 1.05, 1.2, 0.9, 1.5]
    assert trial(by_chance) == Judgement(
        "no difference seen", "no difference proven in 12 rounds, which vary by 31%"
    )
    by_little = [1.5, 1.01, 1.01, 1.4, 1.02, 1.01, 1.6, 1.02, 0.6, 1.01, 1.02, 1.02]
    assert verdict_of(by_little, CONFIDENCE) == "no difference seen"


@pytest.mark.parametrize("spread", [0.03, 0.09])
def test_a_setting_that_does_nothing_is_said_to_do_nothing(spread: float) -> None:
    """Whatever the rounds differ by: the odds of anything else are below 1 in 100."""
    found = [decided(1.0, spread, seed)[0] for seed in range(100)]
    assert found.count("no difference seen") >= 99


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=LOOKS))
def test_the_other_side_of_a_ratio(ratios: list[float]) -> None:
    there = measured(ratios)
    back = measured([1 / ratio for ratio in ratios])
    assert there is not None
    assert back is not None
    turned = inverse(there)
    for field in ("low", "high"):
        mine, other = getattr(turned, field), getattr(back, field)
        assert mine == other or mine == pytest.approx(other, rel=1e-3)


def test_too_few_rounds_have_no_interval() -> None:
    told = measured([0.9, 0.9])
    assert told is not None
    assert (told.low, told.high) == (None, None)
    assert measured([]) is None


def test_rounds_that_are_over() -> None:
    assert verdict_of([], FINAL_CONFIDENCE) == "undecided"
    assert verdict_of([0.5] * 3, FINAL_CONFIDENCE) == "undecided"
    assert verdict_of([0.5] * 12, FINAL_CONFIDENCE) == "helps"
    assert verdict_of([1.5] * 12, FINAL_CONFIDENCE) == "hurts"
    assert verdict_of([1.0 + MARGIN / 3, 1 - MARGIN / 3] * 6, FINAL_CONFIDENCE) == (
        "no difference seen"
    )


def test_final_rounds_agree_by_proof_or_by_a_likely_gain() -> None:
    assert agree([0.99, 0.991] * 20)  # little, but proven
    assert agree([0.8, 1.1, 0.95, 0.9, 1.02, 0.93])  # likely, as far as these few tell
    assert not agree([0.98, 1.1, 0.995, 0.99, 1.02, 0.993])  # nothing worth having
    assert not agree([1.1] * 20)
    assert not agree([])
