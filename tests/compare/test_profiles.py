"""False alarms and misses of the comparison of profiles, on profiles with known noise."""

from __future__ import annotations

import random
import statistics

import pytest

from dltune.compare.profiles import Pair, intervals
from dltune.schemas.profile import OpTime
from dltune.stats import relative_spread


def measured(
    draw: random.Random, seconds: float, noise: float, samples: int, drift: float = 0.0
) -> OpTime:
    """`drift`: what all samples of the case share, as of a machine that was busier then."""
    moment = draw.lognormvariate(0.0, drift)
    found = [seconds * moment * draw.lognormvariate(0.0, noise) for _ in range(samples)]
    return OpTime(
        1, "spread", samples, min(found), statistics.median(found), relative_spread(found)
    )


def alarms(noise: float, samples: int, drift: float, slower: float = 1.0) -> tuple[float, float]:
    """Over 100 pairs of profiles of 60 ops, of which one is `slower`: how often an op that did not
    change is called changed, and how often the one that did is."""
    false = found = 0
    for seed in range(100):
        draw = random.Random(seed)
        pairs = [
            Pair(
                measured(draw, 1e-3, noise, samples, drift),
                measured(draw, 1e-3 * (slower if op == 0 else 1.0), noise, samples, drift),
            )
            for op in range(60)
        ]
        told = [span is not None and not span[0] <= 1 <= span[1] for span in intervals(pairs)]
        found += told[0]
        false += any(told[1:])
    return false / 100, found / 100


@pytest.mark.parametrize(("noise", "samples"), [(0.02, 5), (0.05, 8), (0.1, 5)])
@pytest.mark.parametrize("drift", [0.0, 0.1])
def test_few_false_alarms(noise: float, samples: int, drift: float) -> None:
    false, _ = alarms(noise, samples, drift)
    assert false <= 0.05


def test_large_changes_are_found() -> None:
    assert alarms(0.02, 5, 0.0, slower=1.2)[1] >= 0.95
    assert alarms(0.05, 8, 0.0, slower=1.5)[1] >= 0.95


def test_one_disturbed_sample_is_noise() -> None:
    """A preemption in the middle of a short op, one of a thousand."""
    calm = OpTime(1, "spread", 3, 5e-6, 5e-6, 0.01)
    disturbed = OpTime(1, "spread", 3, 5e-6, 5e-6, relative_spread([5e-6, 5e-6, 2e-3]))
    *others, found = intervals([*[Pair(calm, calm)] * 1000, Pair(disturbed, calm)])
    assert found is not None
    assert found[0] < 1e-9
    assert found[1] > 1e9
    assert all(span is not None and span[0] <= 1 <= span[1] < 2 for span in others)


def test_two_samples_tell_nothing() -> None:
    draw = random.Random(0)
    few = measured(draw, 1.0, 0.1, 2)
    many = measured(draw, 1.0, 0.1, 9)
    assert intervals([Pair(few, many), Pair(many, few)]) == [None, None]
    assert intervals([]) == []


def test_identical_profiles_without_spread() -> None:
    same = OpTime(1, "spread", 5, 1.0, 1.0, 0.0)
    assert intervals([Pair(same, same)] * 20) == [(1.0, 1.0)] * 20
