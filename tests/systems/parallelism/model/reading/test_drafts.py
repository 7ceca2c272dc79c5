"""Where positions lie, against numbers that are really laid out."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dltune.systems.parallelism.model.drafts import Axis, hull, permuted, reduced, reshaped, whole
from dltune.systems.parallelism.schemas.operators import Region

SIZES = st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)


def covered(region: Region, low: int, high: int, size: int) -> set[int]:
    """As documents.operators.Region says."""
    if region.of is None:
        first, last = region.start, region.start + region.extent
    else:
        first = low * region.stride + region.start
        last = (high - 1) * region.stride + region.start + region.extent
    return set(range(max(0, first), min(size, last)))


def outermost(axis: Axis) -> dict[int, Region]:
    return {p.dim: p.region(0) for p in axis[:1] if not p.inner}


@given(SIZES, st.data())
def test_an_axis_of_a_reshaped_tensor_has_just_the_positions_of_its_first_piece(
    sizes: list[int], data: st.DataObject
) -> None:
    numbers = np.arange(math.prod(sizes)).reshape(sizes)
    shape = [*data.draw(st.permutations(sizes)), 1]
    cut = data.draw(st.integers(0, len(shape) - 1))
    shape = [*shape[:cut], math.prod(shape[cut:])]
    view = reshaped(whole(sizes), shape)
    if view is None:
        return
    moved = numbers.reshape(shape)
    for n, axis in enumerate(view):
        assert math.prod(p.size for p in axis) == shape[n]
        if len(axis) != 1:
            continue
        for low in range(shape[n]):
            for high in range(low + 1, shape[n] + 1):
                places = np.unravel_index(np.take(moved, range(low, high), axis=n), sizes)
                for dim, region in outermost(axis).items():
                    touched = set(places[dim].ravel().tolist())
                    assert touched == covered(region, low, high, sizes[dim])


def test_heads_are_pieces_of_the_last_dimension() -> None:
    view = reshaped(whole([8, 64, 128]), [8, 64, 4, 32])
    assert view is not None
    (heads,), (within,) = view[2:]
    assert heads.region(2) == Region(extent=32, of=2, stride=32)
    assert (within.inner, within.size, within.dim) == (True, 32, 2)
    assert reshaped(view, [8, 64, 128]) == (*view[:2], (heads, within))


def test_what_takes_parts_of_pieces_is_not_understood() -> None:
    assert reshaped(whole([6, 4]), [8, 3]) is None
    assert reshaped(whole([6, 4]), [3, 8]) is not None


def test_an_order_of_axes_is_told_by_their_sizes() -> None:
    view = whole([8, 6, 1, 4])
    assert permuted(view, [8, 6, 1, 4], [6, 8, 4, 1]) == (view[1], view[0], view[3], ())
    assert permuted(whole([8, 6, 8]), [8, 6, 8], [6, 8, 8]) is None


def test_which_axes_are_reduced_is_told_by_shapes() -> None:
    assert reduced([8, 4, 4, 3], [8, 3], 2, keep=False) == (1, 2)
    assert reduced([8, 4, 4, 3], [8, 1, 1, 3], 2, keep=True) == (1, 2)
    assert reduced([8, 8, 3], [8, 3], 1, keep=False) is None


@given(
    st.integers(1, 3), st.integers(-3, 3), st.integers(1, 4), st.integers(-3, 3), st.integers(1, 4)
)
def test_a_hull_has_what_both_read(
    stride: int, start: int, extent: int, other: int, more: int
) -> None:
    one, two = Region(extent, 0, stride, start), Region(more, 0, stride, other)
    both = hull(one, two, 20)
    for low in range(5):
        read = covered(one, low, low + 1, 20) | covered(two, low, low + 1, 20)
        assert read <= covered(both, low, low + 1, 20)
    assert hull(one, Region(20), 20) == Region(20)
