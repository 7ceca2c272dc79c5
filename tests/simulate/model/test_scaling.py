from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.simulate.machine_transfer import Law, fitted


@given(st.floats(0, 1), st.floats(1e-3, 10), st.floats(1e-6, 1e-2))
def test_a_law_is_found_again_from_its_own_times(serial, parallel, spawn) -> None:
    law = Law(serial, parallel, spawn)
    found = fitted([(n, law.seconds(n)) for n in (1, 2, 4, 8, 16, 32, 68)])
    for n in range(1, 100):
        assert found.seconds(n) == pytest.approx(law.seconds(n), rel=1e-3)


@given(st.lists(st.tuples(st.integers(1, 68), st.floats(1e-6, 10)), min_size=1, max_size=8))
def test_no_part_is_negative(samples) -> None:
    found = fitted(samples)
    assert min(found.serial, found.parallel, found.spawn) >= 0


def test_one_count_is_taken_as_all_parallel() -> None:
    assert fitted([(1, 8.0)]) == Law(0.0, 8.0, 0.0)
    assert fitted([(2, 4.0)]).seconds(4) == pytest.approx(2.0)


def test_two_falling_counts_follow_amdahl() -> None:
    found = fitted([(1, 10.0), (2, 6.0)])
    assert (found.serial, found.parallel, found.spawn) == pytest.approx((2.0, 8.0, 0.0))


def test_the_optimum_is_where_threads_cost_what_they_save() -> None:
    law = Law(1.0, 36.0**2 * 0.01, 0.01)
    assert law.optimum == pytest.approx(36.0)
    assert min(range(1, 69), key=law.seconds) == 36
    assert Law(1.0, 1.0, 0.0).optimum == math.inf


def test_times_must_be_above_zero() -> None:
    with pytest.raises(ValueError, match="above 0"):
        fitted([(1, 0.0)])
