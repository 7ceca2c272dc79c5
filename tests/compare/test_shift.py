"""The shift of two groups, against enumeration of all orders."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.compare import shift

times = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=8)


@given(times, times)
def test_the_median_of_all_ratios(a: list[float], b: list[float]) -> None:
    ratio, interval = shift.ratio(a, b)
    assert ratio == statistics.median(after / before for after in b for before in a)
    if interval:
        assert interval[0] <= ratio <= interval[1]


@given(times, times)
def test_the_other_way_around(a: list[float], b: list[float]) -> None:
    _, there = shift.ratio(a, b)
    _, back = shift.ratio(b, a)
    assert (there is None) == (back is None)
    if there and back:
        assert math.isclose(there[0] * back[1], 1.0)
        assert math.isclose(there[1] * back[0], 1.0)


@pytest.mark.parametrize(("m", "n"), [(4, 4), (3, 6), (5, 5), (6, 3), (2, 8)])
@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95])
def test_it_holds_what_it_says_over_all_orders(m: int, n: int, confidence: float) -> None:
    """Without a shift every order of the m + n values is as likely: count those it misses."""
    misses = orders = 0
    values = [1.01**k for k in range(m + n)]
    for chosen in itertools.combinations(range(m + n), m):
        a = [values[k] for k in chosen]
        b = [values[k] for k in range(m + n) if k not in chosen]
        _, interval = shift.ratio(a, b, confidence)
        if interval is None:
            continue
        orders += 1
        misses += not interval[0] <= 1 <= interval[1]
    if orders:
        assert orders == math.comb(m + n, m)
        assert misses <= (1 - confidence) * orders


def test_it_is_as_narrow_as_the_tables() -> None:
    """Mann and Whitney's critical value for 10 and 10 at 5 % is 23 (two-sided), so the interval is
    between the 24th ratio from either end."""
    a = [math.exp(k * 1e-3) for k in range(10)]
    b = [math.exp(k * 1e-5) for k in range(10)]
    ratios = sorted(y / x for x in a for y in b)
    _, interval = shift.ratio(a, b)
    assert interval == (ratios[23], ratios[-24])


def test_a_shift_is_found_and_none_is_not() -> None:
    draw = random.Random(1)
    noise = [draw.lognormvariate(0.0, 0.05) for _ in range(20)]
    _, interval = shift.ratio(noise[:10], [1.2 * value for value in noise[10:]])
    assert interval is not None
    assert 1.1 < interval[0] < 1.2 < interval[1] < 1.3


def test_too_few_times() -> None:
    assert shift.ratio([1.0, 1.1], [1.2, 1.3])[1] is None
    with pytest.raises(ValueError, match="no times"):
        shift.ratio([], [1.0])
    with pytest.raises(ValueError, match="positive"):
        shift.ratio([0.0], [1.0])
