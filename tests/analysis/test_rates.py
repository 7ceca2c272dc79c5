from __future__ import annotations

import dataclasses

import pytest
from keyed import keyed

from dltune.analysis.roofline import Rates, rates


def at(threads: int, seconds: float, **counts: float):
    named = {name.replace("_", "-"): value for name, value in counts.items()}
    return keyed("Relu(float[4])", seconds={threads: seconds}, counts=named).times[0]


def test_nothing_counted_nothing_told():
    assert rates(at(2, 1e-3)) == Rates()


def test_each_rate_needs_only_its_own_counters():
    full = rates(
        at(
            2,
            2e-3,
            instructions=3e6,
            cycles=2e6,
            LLC_load_misses=1e4,
            LLC_loads=4e4,
            page_faults=12.0,
            context_switches=0.5,
            task_clock=3e-3,
        ),
        operations=8_000_000,
        moved=1_000_000,
    )
    assert full.ipc == 1.5
    assert full.miss_rate == 0.25
    assert full.memory_rate == pytest.approx(1e4 * 64 / 2e-3)
    assert full.faults == 12
    assert full.switches == 0.5
    assert full.cpu_share == pytest.approx(0.75)
    assert full.flop_rate == pytest.approx(4e9)
    assert full.intensity == pytest.approx(8e6 / (1e4 * 64)), "of memory traffic, where counted"
    assert full.byte_rate == pytest.approx(5e8)
    partly = {
        "instructions": 1.0,
        "cycles": 1.0,
        "LLC_loads": 1.0,
        "major_faults": 1.0,
    }
    for name in partly:
        assert rates(at(1, 1e-3, **{name: 5.0})) == Rates(), name


def test_loads_and_stores_are_taken_together():
    found = rates(at(1, 1.0, LLC_load_misses=3, LLC_store_misses=1, LLC_loads=5, LLC_stores=3))
    assert found.miss_rate == 0.5
    assert found.memory_rate == 256
    generic = rates(at(1, 1.0, cache_misses=3, cache_references=4))
    assert generic.miss_rate == 0.75


@pytest.mark.parametrize(
    ("counts", "faults"),
    [
        ({"page-faults": 7, "minor-faults": 6, "major-faults": 1}, 7),
        ({"minor-faults": 6, "major-faults": 1}, 7),
        ({"minor-faults": 6}, 6),
        ({"page-faults:u": 7}, 7),
        ({"minor-faults": 0, "major-faults": 0}, 0),
    ],
)
def test_page_faults(counts, faults):
    time = keyed("Relu(float[4])", seconds={1: 1e-3}, counts=counts).times[0]
    assert rates(time).faults == faults


def test_a_rate_below_the_line_of_zero_is_not_told():
    found = rates(at(2, 0.0, instructions=1, cycles=0, task_clock=1), 5, 0)
    assert all(value is None for value in dataclasses.asdict(found).values())


def test_operations_without_bytes():
    assert rates(at(1, 1.0), 0, 0).flop_rate == 0
    assert rates(at(1, 1.0), 5, 0).intensity is None
