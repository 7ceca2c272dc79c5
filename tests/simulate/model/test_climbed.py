"""Hill climbing's predictions and how far off they may be."""

from __future__ import annotations

import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st

from dltune.simulate.machine_transfer import Law
from dltune.simulate.op_time import HillClimbing

THERE = synthetic.machine(32, tile=1)


@given(
    st.floats(0, 1), st.floats(0.01, 1), st.floats(0, 0.01), st.integers(1, 8), st.integers(1, 32)
)
def test_the_truth_of_a_convex_op_lies_within_the_error(serial, parallel, spawn, interval, threads):
    law = Law(serial, parallel, spawn)
    op = synthetic.op("Conv2D", law, THERE, interval=interval)
    found = HillClimbing.of([op]).predict(op.key, threads, "spread")
    assert found.seconds - found.error <= law.seconds(threads) * (1 + 1e-9)
    assert law.seconds(threads) <= found.seconds * (1 + 1e-9), "a chord lies above a convex curve"


def test_a_measured_case_is_as_wrong_as_its_samples_are_spread():
    op = synthetic.op("Conv2D", Law(0.0, 1.0, 0.0), THERE)
    assert HillClimbing.of([op]).predict(op.key, 4, "spread") == (0.25, 0.25 * 0.01)


def test_an_unknown_op():
    with pytest.raises(KeyError):
        HillClimbing.of([]).predict("Mul(float[])", 1, "spread")
