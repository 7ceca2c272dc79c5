"""What turns come to: ratios within rounds, efficiency, medians per step."""

from __future__ import annotations

import pytest

from dltune.bench.step_times import summary
from dltune.schemas.bench import Turn


def turns(*medians: float) -> list[Turn]:
    return [
        Turn(number, (m * 0.9, m, m * 1.1), cpu_seconds=m * 2, voluntary=10.0, involuntary=number)
        for number, m in enumerate(medians)
    ]


def test_a_drift_of_the_machine_cancels_out() -> None:
    drift = [1.0, 2.0, 1.5, 1.0, 3.0, 1.2]
    mine = {r: 0.8 * d for r, d in enumerate(drift)}
    found = summary(
        turns(*mine.values()),
        mine,
        dict(enumerate(drift)),
        {r: 1.52 * d for r, d in enumerate(drift)},
        cores=2,
    )
    assert found is not None
    assert found.ratio is not None
    ends = (found.ratio.median, found.ratio.low, found.ratio.high)
    assert ends == pytest.approx((0.8, 0.8, 0.8))
    assert found.ratio.rounds == 6
    assert found.ratio.confidence >= 0.95
    assert found.efficiency == pytest.approx(1.52 / (2 * 0.8))
    assert found.step.samples == 18
    assert found.involuntary == 2.5


def test_only_rounds_of_both_are_compared() -> None:
    found = summary(turns(1.0, 1.0, 5.0), {0: 1.0, 1: 1.0, 2: 5.0}, {0: 2.0, 1: 2.0}, {}, cores=2)
    assert found is not None
    assert found.ratio is not None
    assert found.ratio.rounds == 2
    assert found.ratio.high == 0.5
    assert found.efficiency is None


def test_the_reference_has_no_ratio_and_no_turns_no_summary() -> None:
    alone = summary(turns(1.0), {0: 1.0}, {}, {}, cores=2)
    assert alone is not None
    assert alone.ratio is None
    assert summary([], {}, {}, {}, cores=2) is None
