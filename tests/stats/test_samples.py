"""What a sample comes to: quantiles against the standard library's, and the spread."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.stats import quantiles, relative_spread, summary

times = st.floats(1e-6, 1e3)


@given(st.lists(times, min_size=2, max_size=40), st.integers(2, 20))
def test_quantiles_are_the_inclusive_ones(values: list[float], parts: int) -> None:
    found = quantiles(values, [k / parts for k in range(1, parts)])
    assert found == pytest.approx(statistics.quantiles(values, n=parts, method="inclusive"))


def test_the_ends_are_the_least_and_the_most() -> None:
    assert quantiles([3.0, 1.0, 2.0], (0.0, 1.0)) == [1.0, 3.0]
    assert quantiles([3.0], (0.0, 0.25, 1.0)) == [3.0, 3.0, 3.0]


def test_nothing_has_no_quantile() -> None:
    with pytest.raises(ValueError, match="no values"):
        quantiles([], (0.5,))


def test_a_summary_tells_how_many_the_least_the_median_and_the_spread() -> None:
    found = summary([4.0, 1.0, 2.0, 3.0, 5.0])
    assert (found.samples, found.min, found.median) == (5, 1.0, 3.0)
    assert found.spread == pytest.approx(1 / 3)


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
