from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.schemas.profile import OpTime
from dltune.simulate.op_time import Curve


def test_between_samples_it_is_a_line() -> None:
    """The paper's example (III-C): one and four threads measured, two and three on the line."""
    curve = Curve.of({(1, "spread"): 8.0, (4, "spread"): 2.0})
    assert [curve.seconds(n, "spread") for n in (1, 2, 3, 4)] == [8.0, 6.0, 4.0, 2.0]


def test_one_thread_begins_both_placements() -> None:
    curve = Curve.of({(1, "spread"): 8.0, (2, "spread"): 5.0, (2, "shared"): 4.0})
    assert curve.serial == 8.0
    assert curve.seconds(1, "shared") == 8.0
    assert curve.seconds(2, "shared") == 4.0


def test_above_the_last_sample_a_rise_goes_on_and_a_fall_does_not() -> None:
    rising = Curve.of({(1, "spread"): 8.0, (4, "spread"): 2.0, (8, "spread"): 3.0})
    assert rising.seconds(12, "spread") == 4.0
    falling = Curve.of({(1, "spread"): 8.0, (4, "spread"): 2.0})
    assert falling.seconds(12, "spread") == 2.0


def test_a_placement_without_samples_takes_the_other() -> None:
    curve = Curve.of({(1, "spread"): 8.0, (68, "shared"): 1.0})
    assert curve.seconds(68, "spread") == 1.0


def test_a_single_sample_is_a_flat_curve() -> None:
    curve = Curve.of({(4, "shared"): 3.0})
    assert {curve.seconds(n, p) for n in (1, 4, 9) for p in ("spread", "shared")} == {3.0}


def test_without_samples_there_is_no_curve() -> None:
    with pytest.raises(ValueError, match="no curve"):
        Curve.of({})


def test_the_fastest_sample_counts() -> None:
    curve = Curve.measured([OpTime(1, "spread", 5, 1.0, 2.0, 0.1)])
    assert curve.serial == 1.0


def test_the_best_choice_takes_the_fewest_threads_among_equals() -> None:
    curve = Curve.of({(1, "spread"): 8.0, (4, "spread"): 2.0, (8, "spread"): 2.0})
    best = curve.best((n, "spread") for n in range(1, 9))
    assert (best.threads, best.seconds) == (4, 2.0)


@given(
    st.dictionaries(st.integers(1, 68), st.floats(1e-6, 10.0), min_size=1, max_size=12),
    st.integers(1, 80),
)
def test_it_stays_between_neighbouring_samples(samples, threads) -> None:
    curve = Curve.of({(n, "spread"): s for n, s in samples.items()})
    found = curve.seconds(threads, "spread")
    below = [s for n, s in sorted(samples.items()) if n <= threads][-1:]
    above = [s for n, s in sorted(samples.items()) if n >= threads][:1]
    if below and above:
        assert min(below + above) * (1 - 1e-9) <= found <= max(below + above) * (1 + 1e-9)
    assert found >= min(samples.values()) * (1 - 1e-9)


@given(
    st.dictionaries(
        st.tuples(st.integers(1, 40), st.sampled_from(["spread", "shared"])),
        st.integers(1, 50).map(float),
        min_size=1,
        max_size=8,
    ),
    st.sets(st.integers(1, 40), min_size=1),
    st.sets(st.integers(1, 40)),
)
def test_the_best_of_all_counts_is_at_a_corner(samples, spread, shared) -> None:
    curve = Curve.of(samples)
    counts = {"spread": sorted(spread), "shared": sorted(shared)}
    every = [(n, placement) for placement, offered in counts.items() for n in offered]
    best = curve.best(curve.corners(counts))
    assert best.seconds == pytest.approx(curve.best(every).seconds)
