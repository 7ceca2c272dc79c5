"""Shapes and axes that a key does not tell, found from the bytes of the output."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.profile.standalone import Standalone, shape_value
from dltune.schemas.graph import TensorType, parse_key


def found(key: str, argument: str, out: int, new: str = "", kind: str = "", batches=(8, 8)):
    op = parse_key(key)
    wanted = Standalone(new or key, key, out, *batches)
    return shape_value(kind or op.type, argument, parse_key(wanted.key), op, wanted)


@given(
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(1, 3),
    st.sampled_from(["SAME", "VALID"]),
    st.integers(1, 9),
)
def test_a_convolution_s_gradients(side, window, step, padding, channels):
    """The shapes found give back the output's size, and do as much work as the true ones."""
    if padding == "VALID" and window > side:
        return
    rest = side if padding == "SAME" else side - window + 1
    after = -(-rest // step)
    attributes = f"{{padding={padding}, strides=[1,{step},{step},1]}}"
    image, gradient = f"float[8,{side},{side},{channels}]", f"float[8,{after},{after},5]"
    key = f"Conv2DBackpropFilter({image},int32[4],{gradient}){attributes}"
    filters = found(key, "filter_sizes", window * window * channels * 5 * 4)
    assert filters == (window, window, channels, 5)
    key = f"Conv2DBackpropInput(int32[4],float[{window},{window},{channels},5],{gradient})"
    sizes = found(key + attributes, "input_sizes", 8 * side * side * channels * 4)
    assert sizes[0] == 8
    assert sizes[3] == channels
    assert sizes[1] * sizes[2] == side * side


def test_another_batch_size():
    key = (
        "Conv2DBackpropInput(int32[4],float[3,3,2,5],float[{},4,4,5])"
        "{{padding=SAME, strides=[1,2,2,1]}}"
    )
    out = 8 * 8 * 8 * 2 * 4
    sizes = found(key.format(8), "input_sizes", out, key.format(32), batches=(8, 32))
    assert sizes == (32, 8, 8, 2)


def test_a_filter_s_gradient_with_bias():
    key = (
        "_MklNativeConv2DBackpropFilterWithBias(float[8,4,4,6],int32[4],float[8,4,4,5])"
        "{padding=SAME, strides=[1,1,1,1]}"
    )
    sizes = found(key, "filter_sizes", (1 * 7 * 6 * 5 + 5) * 4, kind="Conv2DBackpropFilter")
    assert sizes == (1, 7, 6, 5), "7x1 does the same work"


@given(st.lists(st.integers(2, 7), min_size=1, max_size=5), st.data())
def test_a_reduction_s_axes(shape, data):
    axes = data.draw(st.sets(st.sampled_from(range(len(shape))), min_size=1))
    reduced = math.prod(shape[axis] for axis in axes)
    tensor = TensorType("float", tuple(shape))
    key = f"Sum({tensor},int32[{len(axes)}]){{keep_dims=true}}"
    made = found(key, "reduction_indices", tensor.bytes // reduced)
    assert math.prod(shape[axis] for axis in made) == reduced


@pytest.mark.parametrize(
    ("key", "argument", "out", "expected"),
    [
        ("Mean(float[8,100],int32[])", "reduction_indices", 400, 0),
        ("ConcatV2(float[8,4,4,2],float[8,4,4,3],int32[])", "axis", 8 * 16 * 5 * 4, 3),
        ("ConcatV2(float[2],float[2],int32[])", "axis", 16, 0),
        ("Tile(float[1,1,1,6],int32[4])", "multiples", 8 * 16 * 6 * 4, (8, 4, 4, 1)),
        ("Tile(float[1,100],int32[2])", "multiples", 8 * 100 * 4, (8, 1)),
        ("Tile(float[8,1,1,6],int32[4])", "multiples", 8 * 16 * 6 * 4, (1, 4, 4, 1)),
        (
            "Pad(float[8,4,4,2],int32[4,2])",
            "paddings",
            8 * 6 * 6 * 2 * 4,
            ((0, 0), (1, 1), (1, 1), (0, 0)),
        ),
        (
            "AvgPoolGrad(int32[4],float[8,2,2,3])"
            "{ksize=[1,3,3,1], padding=SAME, strides=[1,2,2,1]}",
            "orig_input_shape",
            8 * 16 * 3 * 4,
            (8, 4, 4, 3),
        ),
    ],
)
def test_other_values(key, argument, out, expected):
    assert found(key, argument, out) == expected


@pytest.mark.parametrize(
    ("key", "argument", "out"),
    [
        ("Reshape(float[8,2],int32[1])", "shape", 64),
        ("Tile(float[1,1,1,6],int32[4])", "multiples", 8 * 15 * 6 * 4),
        ("Pad(float[8,4,4,2],int32[4,2])", "paddings", 8 * 5 * 5 * 2 * 4),
        ("Sum(float[8,4],int32[1])", "reduction_indices", 12),
        (
            "Conv2DBackpropInput(int32[4],float[3,3,2,5],float[8,5,4,4])"
            "{data_format=NCHW, padding=SAME, strides=[1,1,1,1]}",
            "input_sizes",
            8 * 16 * 2 * 4,
        ),
    ],
)
def test_what_the_key_does_not_tell_is_refused(key, argument, out):
    with pytest.raises(ValueError, match=f"^input {argument} is a value"):
        found(key, argument, out)
