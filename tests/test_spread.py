"""The spread of measurements: its definition, and what it does not depend on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.spread import relative_spread

times = st.floats(1e-6, 1e3)


def test_it_is_half_the_interquartile_range_over_the_median() -> None:
    assert relative_spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(1 / 3)  # quartiles 2 and 4
    assert relative_spread([2.0, 2.0, 2.0]) == 0.0


@pytest.mark.parametrize("samples", [[], [7.0], [0.0, 0.0]])
def test_there_is_none_where_nothing_can_lie_apart(samples: list[float]) -> None:
    assert relative_spread(samples) == 0.0


@given(st.lists(times, min_size=1), st.floats(1e-3, 1e3))
def test_it_does_not_depend_on_the_unit_or_the_order(samples: list[float], unit: float) -> None:
    expected = pytest.approx(relative_spread(samples), rel=1e-6, abs=1e-9)
    assert relative_spread([sample * unit for sample in samples]) == expected
    assert relative_spread(samples[::-1]) == expected


def test_it_ignores_one_wild_sample() -> None:
    assert relative_spread([1.0] * 20 + [1000.0]) == 0.0
