"""Counting windows by formula, against sliding them over the image one by one."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from dltune.analysis.keys import Layout, Sliding, factors

axis = st.tuples(
    st.integers(1, 9),  # image
    st.integers(1, 4),  # window
    st.integers(1, 3),  # stride
    st.integers(1, 3),  # dilation
    st.tuples(st.integers(0, 3), st.integers(0, 3)),  # explicit padding
)


def slid(size: int, taps: int, stride: int, dilation: int, before: int, after: int) -> list[int]:
    """How many elements of the image are in each window of the padded line."""
    line = [0] * before + [1] * size + [0] * after
    found = []
    start = 0
    while start + (taps - 1) * dilation < len(line):
        found.append(sum(line[start + tap * dilation] for tap in range(taps)))
        start += stride
    return found


def around(padding: str, size: int, taps: int, stride: int, dilation: int, explicit):
    """TensorFlow's padding: for SAME, as much as ceil(size / stride) windows need, the less half
    before."""
    if padding == "VALID":
        return 0, 0
    if padding == "EXPLICIT":
        return explicit
    windows = math.ceil(size / stride)
    needed = max(0, (windows - 1) * stride + (taps - 1) * dilation + 1 - size)
    return needed // 2, needed - needed // 2


@given(st.sampled_from(["SAME", "VALID", "EXPLICIT"]), st.lists(axis, min_size=1, max_size=3))
def test_pairs_and_windows_are_those_of_sliding(padding, axes):
    images, windows, strides, dilations, explicit = (
        tuple(part) for part in zip(*axes, strict=True)
    )
    paddings = {"SAME": None, "VALID": ((0, 0),) * len(axes), "EXPLICIT": explicit}
    slide = Sliding(Layout(0, ()), strides, dilations, paddings[padding])
    lines = [slid(*a[:4], *around(padding, *a)) for a in axes]
    found = slide.windows(images, windows)
    if not all(lines):
        assert found is None
        return
    assert found == tuple(map(len, lines))
    pairs = sum(math.prod(each) for each in itertools.product(*lines))
    assert slide.pairs(images, windows, found) == pairs
    assert images in list(slide.images(found, windows, math.prod(images)))
    for image in slide.images(found, windows, math.prod(images)):
        assert slide.windows(image, windows) == found
        assert math.prod(image) == math.prod(images)


@given(st.integers(1, 60), st.integers(1, 3))
def test_factors_are_all_that_there_are(product, rank):
    found = list(factors(product, rank))
    sizes = itertools.product(range(1, product + 1), repeat=rank) if product <= 12 else None
    assert all(math.prod(window) == product for window in found)
    assert len(set(found)) == len(found)
    if sizes:
        assert sorted(found) == sorted(window for window in sizes if math.prod(window) == product)


def test_a_window_that_cannot_be_meant() -> None:
    """As a trace may say: its taps are not counted one by one."""
    sliding = Sliding(Layout(1, (2,)), (1,), (1,), ((0, 0),))
    assert sliding.windows((10**12,), (10**12,)) is None
