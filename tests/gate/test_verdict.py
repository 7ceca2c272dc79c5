"""Where the interval lies beside the limit."""

from __future__ import annotations

import math
import random
import statistics

import decided as decided_one
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.gate import formats, limits
from dltune.gate.limits import Config, Limit
from dltune.gate.verdicts import (
    FORESEEN,
    Sample,
    decided,
    excluded,
    held,
    judge,
    least_baseline,
    overall,
)
from dltune.stats import least_rounds

RATIO = Limit("step_time", ratio=1.03)


def paired(ratio: float, rounds: int, metric: str = "step_time") -> Sample:
    base = [1.0 + 0.1 * (i % 3) for i in range(rounds)]
    return Sample(metric, "s", base, [b * ratio for b in base])


@pytest.mark.parametrize(("ratio", "outcome"), [(1.0, "pass"), (1.02, "pass"), (1.2, "fail")])
def test_clear_ratios_are_decided_in_a_dozen_rounds(ratio: float, outcome: str) -> None:
    (verdict,) = judge(RATIO, paired(ratio, 12), 0.98)
    assert verdict.outcome == outcome
    assert verdict.median == pytest.approx(ratio)
    assert verdict.low is not None
    assert verdict.low <= ratio * 1.0001


def test_few_rounds_decide_nothing() -> None:
    (verdict,) = judge(RATIO, paired(2.0, 3), 0.98)
    assert (verdict.outcome, verdict.low, verdict.high) == ("undecided", None, None)
    assert "too few" in verdict.why
    assert not decided([verdict])


def test_a_metric_with_two_limits_has_two_verdicts() -> None:
    limit = Limit("peak_bytes", ratio=1.1, at_most=50.0)
    sample = Sample("peak_bytes", "bytes", [100.0] * 12, [101.0] * 12)
    ratio, value = judge(limit, sample, 0.98)
    assert (ratio.over, ratio.outcome) == ("ratio", "pass")
    assert (value.over, value.outcome, value.median) == ("value", "fail", 101.0)
    assert overall([ratio, value]) == "fail"


def test_counts_that_hardly_differ_do_not() -> None:
    """From 0 to 3 page faults is no infinite slowdown; from 0 to 300 is."""
    limit = Limit("page_faults", ratio=1.1)
    for faults, outcome in ((3.0, "pass"), (300.0, "fail")):
        sample = Sample("page_faults", "count", [0.0] * 12, [faults] * 12)
        (verdict,) = judge(limit, sample, 0.98)
        assert verdict.outcome == outcome


def test_one_round_over_nothing_decides_nothing() -> None:
    limit = Limit("page_faults", ratio=1.1)
    (verdict,) = judge(limit, Sample("page_faults", "count", [0.0], [300.0]), 0.95)
    assert verdict.outcome == "undecided"
    least = least_rounds(0.95, paired=True)
    assert verdict.needed == least
    assert formats.undecided(verdict) == (
        f"1 round is too few for an interval; about {least - 1} more rounds would decide it"
    )
    for faults, outcome in ((300.0, "fail"), (3.0, "pass")):
        sample = Sample("page_faults", "count", [0.0] * 15, [faults] * 15, paired=False)
        assert judge(limit, sample, 0.95)[0].outcome == outcome


def test_a_baseline_of_too_few_rounds() -> None:
    enough = least_baseline(0.95)
    assert enough == 7
    for rounds, outcome in ((enough, "pass"), (enough - 1, "undecided")):
        sample = Sample("step_time", "s", [1.0] * rounds, [1.0] * 30, paired=False)
        (verdict,) = judge(RATIO, sample, 0.95)
        assert verdict.outcome == outcome
        assert verdict.needed is None


def test_an_exact_value_needs_one_round() -> None:
    for head, outcome in ((1.01, "pass"), (1.1, "fail")):
        sample = Sample("plan_step_time", "s", [1.0], [head], exact=True)
        assert judge(RATIO, sample, 0.98)[0].outcome == outcome


def test_what_is_not_measured_is_undecided_and_no_round_helps() -> None:
    (verdict,) = judge(RATIO, Sample("step_time", "s", missing="no unit"), 0.98)
    assert (verdict.outcome, verdict.why) == ("undecided", "not measured: no unit")
    assert decided([verdict])


def test_a_baseline_s_own_spread_counts() -> None:
    wide = [1.0 + 0.2 * (i % 5 - 2) for i in range(15)]
    narrow = [1.0 + 0.001 * (i % 5 - 2) for i in range(15)]
    for base, outcome in ((narrow, "fail"), (wide, "undecided")):
        sample = Sample("step_time", "s", list(base), [1.1 * x for x in narrow], paired=False)
        assert judge(RATIO, sample, 0.98)[0].outcome == outcome
    few = Sample("step_time", "s", narrow[:4], narrow * 3, paired=False)
    assert judge(RATIO, few, 0.98)[0].outcome == "undecided"
    assert "45 rounds against 4 are too few" in judge(RATIO, few, 0.98)[0].why
    none = Sample("step_time", "s", [0.0] * 15, narrow, paired=False)
    assert judge(RATIO, none, 0.98)[0].outcome == "fail"


@pytest.mark.parametrize(
    ("undecided", "high", "passes"),
    [
        ("pass", None, True),
        ("pass", 1.5, True),
        ("fail", 1.031, False),
        ("pass below 5 %", 1.049, True),
        ("pass below 5 %", 1.051, False),
        ("pass below 2.5%", 1.049, False),
        ("pass below 5 %", None, False),
    ],
)
def test_what_is_undecided_passes_as_configured(
    undecided: str, high: float | None, passes: bool
) -> None:
    found = decided_one.verdict(outcome="undecided", low=0.99, high=high)
    assert held(found, limits.parse({"undecided": undecided}, "gate.toml")) == passes


def test_a_limit_that_does_not_hold_fails_however_undecided_counts() -> None:
    assert not held(decided_one.verdict(outcome="fail"), Config(undecided="pass"))


def test_of_a_value_what_lies_above_its_limit_counts() -> None:
    most = decided_one.verdict(outcome="undecided", over="value", limit=50.0, high=52.0)
    assert excluded(most) == pytest.approx(0.04)


@pytest.mark.parametrize("truth", [1.0, 1.06])
def test_as_many_rounds_as_foreseen_decide_it(truth: float) -> None:
    """The median of 60 forecasts, each made as soon as there is an interval, against the median of
    the rounds that it took."""
    lot, foreseen, taken = random.Random(7), [], []
    for _ in range(60):
        ratios: list[float] = []
        forecast = None
        while True:
            ratios.append(truth * math.exp(lot.gauss(0.0, 0.04)))
            if len(ratios) % 4:
                continue
            (verdict,) = judge(RATIO, Sample("step_time", "s", [1.0] * len(ratios), ratios), 0.95)
            if verdict.outcome != "undecided":
                break
            if forecast is None and len(ratios) >= 12:
                forecast = verdict.needed or 12 * FORESEEN
        if forecast is not None:
            foreseen.append(forecast)
            taken.append(len(ratios))
    assert len(taken) > 20
    assert 0.5 <= statistics.median(foreseen) / statistics.median(taken) <= 3


def test_what_lies_at_the_limit_is_not_foreseen() -> None:
    ratios = [1.03 * x for x in (0.98, 1.02, 0.99, 1.01, 0.97, 1.03) * 4]
    (verdict,) = judge(RATIO, Sample("step_time", "s", [1.0] * 24, ratios), 0.95)
    assert (verdict.outcome, verdict.needed) == ("undecided", None)
    assert "cannot be estimated" in formats.undecided(verdict)


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), min_size=1, max_size=30))
def test_any_values_give_a_verdict_that_agrees_with_its_interval(
    pairs: list[tuple[float, float]],
) -> None:
    for is_paired in (True, False):
        sample = Sample("time", "s", [b for b, _ in pairs], [h for _, h in pairs], paired=is_paired)
        (verdict,) = judge(Limit("time", ratio=1.03), sample, 0.9)
        if verdict.outcome == "pass":
            assert verdict.high is not None
            assert verdict.high <= 1.03
        if verdict.outcome == "fail" and verdict.low is not None:
            assert verdict.low > 1.03
