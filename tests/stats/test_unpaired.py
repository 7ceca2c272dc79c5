"""The shift of two groups, against enumeration of all orders."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune import stats
from dltune.stats import unpaired_ratio

times = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=8)


@given(times, times)
def test_the_median_of_all_ratios(a: list[float], b: list[float]) -> None:
    found = unpaired_ratio(a, b)
    assert found.median == statistics.median(after / before for after in b for before in a)
    assert found.low <= found.median <= found.high


@given(times, times)
def test_the_other_way_around(a: list[float], b: list[float]) -> None:
    there, back = unpaired_ratio(a, b), unpaired_ratio(b, a)
    assert (there.bounds == (None, None)) == (back.bounds == (None, None))
    if there.bounds != (None, None):
        assert math.isclose(there.low * back.high, 1.0)
        assert math.isclose(there.high * back.low, 1.0)


@pytest.mark.parametrize(("m", "n"), [(4, 4), (3, 6), (5, 5), (6, 3), (2, 8)])
@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95])
def test_it_holds_what_it_says_over_all_orders(m: int, n: int, confidence: float) -> None:
    """Without a shift every order of the m + n values is as likely: count those it misses."""
    misses = orders = 0
    values = [1.01**k for k in range(m + n)]
    for chosen in itertools.combinations(range(m + n), m):
        a = [values[k] for k in chosen]
        b = [values[k] for k in range(m + n) if k not in chosen]
        found = unpaired_ratio(a, b, confidence)
        if found.bounds == (None, None):
            continue
        orders += 1
        misses += not found.low <= 1 <= found.high
    if orders:
        assert orders == math.comb(m + n, m)
        assert misses <= (1 - confidence) * orders


def test_it_is_as_narrow_as_the_tables() -> None:
    """Mann and Whitney's critical value for 10 and 10 at 5 % is 23 (two-sided), so the interval is
    between the 24th ratio from either end."""
    a = [math.exp(k * 1e-3) for k in range(10)]
    b = [math.exp(k * 1e-5) for k in range(10)]
    ratios = sorted(y / x for x in a for y in b)
    assert unpaired_ratio(a, b).bounds == (ratios[23], ratios[-24])


def test_many_times_as_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all orders are too many to count, U is taken to be normal."""
    for m, n in ((20, 30), (5, 60), (50, 50), (2, 40), (1, 50)):
        exact = stats._unpaired_rank(m, n, 0.95)
        monkeypatch.setattr(stats, "MOST_STEPS", 0)
        assert exact - 0.01 * m * n - 1 <= stats._unpaired_rank(m, n, 0.95) <= exact + 1
        monkeypatch.undo()
    draw = random.Random(2)
    noise = [draw.lognormvariate(0.0, 0.05) for _ in range(1200)]
    found = unpaired_ratio(noise[:600], [1.02 * value for value in noise[600:]])
    assert 1.01 < found.low < 1.02 < found.high < 1.03


def test_a_shift_is_found_and_none_is_not() -> None:
    draw = random.Random(1)
    noise = [draw.lognormvariate(0.0, 0.05) for _ in range(20)]
    found = unpaired_ratio(noise[:10], [1.2 * value for value in noise[10:]])
    assert 1.1 < found.low < 1.2 < found.high < 1.3


def test_too_few_times() -> None:
    assert unpaired_ratio([1.0, 1.1], [1.2, 1.3]).bounds == (None, None)
    with pytest.raises(ValueError, match="no times"):
        unpaired_ratio([], [1.0])
    with pytest.raises(ValueError, match="positive"):
        unpaired_ratio([0.0], [1.0])
