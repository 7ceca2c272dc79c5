"""False alarms and misses on recorded steps of a real training job, on a noisy machine.

docs/research/benchmarks/gate.md has the figures of `python scripts/release/gate_power.py`, from
more trials.
"""

from __future__ import annotations

import math
import random
import statistics

import pytest
import resampled

from dltune.gate.limits import DEFAULT_RATIO, Config

# 300 s of launches of 12.5 s, as they were recorded
MOST, TRIALS = 24, 400


@pytest.fixture(scope="module")
def launches() -> list[tuple[float, float]]:
    return resampled.quartiles(resampled.load("unchanged"))


def outcomes(launches: list[tuple[float, float]], factor: float) -> list[resampled.Decision]:
    lot = random.Random(11)
    confidence = Config().confidence
    return [
        resampled.gate(
            *(launches, lot), factor=factor, limit=DEFAULT_RATIO, confidence=confidence, most=MOST
        )
        for _ in range(TRIALS)
    ]


def rate(found: list[resampled.Decision], outcome: str) -> float:
    return sum(decision.outcome == outcome for decision in found) / len(found)


def test_the_recording_is_long_and_noisy(launches: list[tuple[float, float]]) -> None:
    whole = resampled.load("unchanged")
    assert sum(min(len(base), len(head)) for base, head in whole) > 5000
    assert statistics.pstdev([math.log(h / b) for b, h in launches]) > 0.03


def test_unchanged_code_hardly_ever_fails(launches: list[tuple[float, float]]) -> None:
    found = outcomes(launches, 1.0)
    failures = sum(decision.outcome == "fail" for decision in found)
    assert resampled.upper_bound(failures, TRIALS) <= 0.01


def test_slowdowns_are_caught(launches: list[tuple[float, float]]) -> None:
    assert rate(outcomes(launches, 1.10), "fail") >= 0.95
    middling = outcomes(launches, 1.05)
    assert rate(middling, "fail") > 0.5
    assert rate(middling, "pass") <= 0.01


def test_speed_ups_pass(launches: list[tuple[float, float]]) -> None:
    assert rate(outcomes(launches, 1 / 1.10), "pass") >= 0.95


def test_a_change_at_the_limit_fails_no_more_than_promised(
    launches: list[tuple[float, float]],
) -> None:
    """Each side of a 95 % interval errs in 2.5 %; the standard error of the figure is 0.8 %."""
    found = outcomes(launches, DEFAULT_RATIO)
    assert rate(found, "fail") <= 0.025 + 0.016


@pytest.mark.parametrize(("failures", "trials", "bound"), [(0, 300, 0.00994), (3, 100, 0.0757)])
def test_the_upper_bound_is_clopper_and_pearson_s(failures: int, trials: int, bound: float) -> None:
    assert resampled.upper_bound(failures, trials) == pytest.approx(bound, rel=2e-3)
