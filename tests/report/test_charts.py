"""Axes and thinned series."""

from __future__ import annotations

import math
import re
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.base.formatting import Course, Series
from dltune.report.plot import Axis, cdf, course, round_step, up_to
from dltune.report.sections.timelines import thinned

numbers = st.floats(1e-9, 1e9)


@given(numbers)
def test_steps_are_round(least: float) -> None:
    step = round_step(least)
    assert least * (1 - 1e-9) <= step <= least * 2.5 * (1 + 1e-9)
    assert (
        min(abs(step / 10 ** math.floor(math.log10(step * 1.0001)) - f) for f in (1, 2, 5)) < 1e-6
    )


@given(numbers, st.integers(2, 12))
def test_ticks_are_few_and_on_the_axis(high: float, most: int) -> None:
    ticks = Axis(0.0, high).ticks(most)
    assert 1 <= len(ticks) <= most
    assert all(0 <= value <= high * (1 + 1e-6) for value, _ in ticks)


@given(st.floats(0.0, 1e13), st.floats(1.0, 1e3), st.integers(2, 12))
def test_ticks_of_a_narrow_range_are_few(low: float, width: float, most: int) -> None:
    """As of instructions that vary by 20 of 1e12."""
    assert len(Axis(low, low + width).ticks(most)) <= most


@given(st.lists(numbers, max_size=5))
def test_an_axis_holds_its_values(values: list[float]) -> None:
    high = up_to(values)
    assert high > 0
    assert all(value <= high * (1 + 1e-6) for value in values)


def test_logarithmic() -> None:
    axis = Axis(0.01, 100.0, log=True)
    assert [text for _, text in axis.ticks(6)] == ["0.01", "0.1", "1", "10", "100"]
    assert axis.at(1.0) == 0.5
    assert axis.at(0.0) == 0.0
    assert axis.at(1e9) == 1.0


@given(st.dictionaries(st.text("ab", max_size=2), st.lists(numbers, min_size=1), min_size=1))
def test_a_cdf_goes_from_the_least_value_to_the_largest(samples: dict[str, list[float]]) -> None:
    drawn = str(cdf("steps", samples, " ms"))
    low, high = min(map(min, samples.values())), max(map(max, samples.values()))
    axis = Axis(low, high)
    lines = re.findall(r'd="M([^"]*)"', drawn)
    legend = drawn[drawn.index("</svg>") :]
    middles = map(float, re.findall(r"half at most ([0-9.]+) ms", legend))
    assert len(lines) == len(samples)
    for line, values, middle in zip(lines, samples.values(), middles, strict=True):
        points = [tuple(map(float, point.split(","))) for point in line.split("L")]
        assert points == sorted(points, key=lambda point: (point[0], -point[1]))
        assert points[0] == pytest.approx((1000 * axis.at(min(values)), 160), abs=0.06)
        assert points[-1] == pytest.approx((1000 * axis.at(max(values)), 0), abs=0.06)
        assert len(points) <= 101
        # half of the values lie at or below where the line passes the middle
        assert middle == pytest.approx(median(values), abs=0.00501)


def test_large_numbers_are_short() -> None:
    assert [t for _, t in Axis(0.0, 2e6).ticks(3)] == ["0", "1M", "2M"]
    assert [t for _, t in Axis(0.0, 40e3).ticks(3)] == ["0", "20k", "40k"]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 9)), min_size=1, max_size=30),
    st.integers(1, 17),
)
def test_thinned_keeps_range_and_mean(steps: list[tuple[int, int]], columns: int) -> None:
    points, at = [], 0
    for gap, level in steps:
        points.append((float(at), float(level)))
        at += gap
    band, mean = thinned(points, float(at), columns)
    fine = [next(v for t, v in reversed(points) if t <= i / 50) for i in range(50 * at)]
    assert max(high for _, _, high in band) == max(fine)
    assert min(low for _, low, _ in band) == min(fine)
    width = at / columns
    for column, (_, value) in enumerate(mean):
        left, right = column * width, (column + 1) * width
        area = sum(
            level * max(0.0, min(right, until) - max(left, start))
            for (start, level), until in zip(points, [*(t for t, _ in points[1:]), at], strict=True)
        )
        assert math.isclose(value, area / width, abs_tol=1e-6)


def test_a_course_has_each_series_on_the_same_axes() -> None:
    series = [Series("before", 2.0, [1.0, 4.0, 2.0, 0.0]), Series("after", 4.0, [2.0, 3.0])]
    drawn = str(course(Course("memory over time", series, "MiB")))
    assert "Memory over time." in drawn
    assert "before: at most 4.0 MiB" in drawn
    assert "after: at most 3.0 MiB" in drawn
    first, second = re.findall(r'd="M([^"]*)"', drawn)
    # the first ends where half of the time has passed
    assert first.split("H")[-2].startswith("500")
    assert second.split("H")[-2].startswith("1000")
