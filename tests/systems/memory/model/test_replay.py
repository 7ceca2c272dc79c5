from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.simulate.step_graph import Lives, peak
from dltune.systems.memory import cudnn
from dltune.systems.memory.model.allocator import BLOCK, replayed
from dltune.systems.memory.model.layered import layer_step, schedule_recomputation
from dltune.systems.memory.model.schedule import lives


def of(rows: list[tuple[int, int, int]]) -> Lives:
    """From begin, length and bytes."""
    begin = np.array([row[0] for row in rows], np.int64)
    return Lives(
        np.arange(len(rows), dtype=np.int32),
        begin,
        begin + np.array([row[1] for row in rows], np.int64),
        np.array([row[2] for row in rows], np.int64),
    )


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(0, 9 * BLOCK)), max_size=12
    )
)
def test_no_two_are_in_one_place_at_once(rows):
    found = of(rows)
    made = replayed(found)
    real = [
        (begin, begin + length, made.addresses[k], made.addresses[k] + bytes)
        for k, (begin, length, bytes) in enumerate(rows)
        if length and bytes
    ]
    for k, (begin, end, low, high) in enumerate(real):
        assert low % BLOCK == 0
        assert high <= made.top
        for other in real[:k]:
            apart = end <= other[0] or other[1] <= begin
            assert apart or high <= other[2] or other[3] <= low
    assert made.allocations == len(real)
    assert made.peak == peak(found)[0] <= made.rounded <= made.top


def test_what_lies_between_is_wasted():
    """The second one's place is too small for the fourth."""
    made = replayed(of([(0, 9, BLOCK), (0, 2, BLOCK), (0, 9, BLOCK), (3, 2, 2 * BLOCK)]))
    assert (made.peak, made.top) == (4 * BLOCK, 5 * BLOCK)
    assert made.waste == pytest.approx(0.25)
    assert made.longest == 2


def test_alexnet_takes_hardly_more_than_its_peak():
    step = layer_step(cudnn.alexnet(), 200)
    made = replayed(lives(step.graph, schedule_recomputation(step, "keep", offload=False)))
    assert made.allocations == 35
    assert 0 <= made.waste < 0.1
