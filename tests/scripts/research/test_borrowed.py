"""Shapes lent by other ops of a type."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.simulate.machine_transfer import Law
from dltune.simulate.op_time import Case

sys.path.append(str(Path(__file__).parents[3] / "scripts" / "research"))
from borrowed import Shapes

CASES: list[Case] = [(n, "spread") for n in range(1, 33)]


def times(law: Law, cases: list[Case] = CASES) -> dict[Case, float]:
    return {case: law.seconds(case[0]) for case in cases}


def scaled(work: float) -> Law:
    return Law(0.02 * work, work, work / 400)


@given(st.floats(0.01, 100))
def test_ops_that_scale_alike_need_one_sample(work):
    shapes = Shapes.of([("Conv2D", times(scaled(w))) for w in (0.1, 1.0, 10.0)])
    one = scaled(work).seconds(1)
    found = shapes.filled("Conv2D", {(1, "spread"): one}, CASES)
    assert found == pytest.approx(times(scaled(work)), rel=1e-9)


@given(st.sets(st.sampled_from(CASES[1:]), max_size=6), st.floats(0.5, 2.0))
def test_samples_stay_what_they_are(sampled, wrong):
    shapes = Shapes.of([("Conv2D", times(scaled(1.0)))])
    samples = {(1, "spread"): 5.0, **{case: wrong * 5.0 / case[0] for case in sampled}}
    found = shapes.filled("Conv2D", samples, CASES)
    assert {case: found[case] for case in samples} == samples
    assert all(seconds > 0 for seconds in found.values())


def test_a_shape_is_bent_to_the_samples():
    """Lent: perfect scaling. Measured: half of it at 16 threads; so at 4, the root of that."""
    shapes = Shapes.of([("Conv2D", times(Law(0.0, 1.0, 0.0)))])
    found = shapes.filled("Conv2D", {(1, "spread"): 1.0, (16, "spread"): 1 / 8}, CASES)
    assert found[4, "spread"] == pytest.approx(2**0.5 / 4)
    assert found[32, "spread"] == pytest.approx(1 / 16)


def test_ops_near_in_work_count_more():
    shapes = Shapes.of(
        [("Conv2D", times(Law(1e-3, 0.0, 0.0))) for _ in range(5)]
        + [("Conv2D", times(Law(0.0, 1.0, 0.0))) for _ in range(5)]
    )
    assert shapes.shape("Conv2D", 2e-3, [(2, "spread")]) == pytest.approx({(2, "spread"): 1.0})
    assert shapes.shape("Conv2D", 0.5, [(2, "spread")]) == pytest.approx({(2, "spread"): 0.5})


def test_nothing_is_lent_to_another_type():
    shapes = Shapes.of([("Conv2D", times(scaled(1.0)))])
    assert shapes.filled("Mul", {(1, "spread"): 1.0}, CASES) == {(1, "spread"): 1.0}
    with pytest.raises(KeyError):
        shapes.filled("Conv2D", {(2, "spread"): 1.0}, CASES)
