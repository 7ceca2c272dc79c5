"""Operations by formula: against loops that do each of them, and cases worked by hand."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyed import convolution, keyed

from dltune.analysis.flops import filters, moved, operations

FLOAT = 4


def loops(image, window, into, out, strides, padding, batch=1):
    """A plain convolution's multiplications and additions, one by one; and its output's size."""
    size = []
    before = []
    for length, taps, stride in zip(image, window, strides, strict=True):
        if padding == "SAME":
            size.append(math.ceil(length / stride))
            before.append(max(0, (size[-1] - 1) * stride + taps - length) // 2)
        else:
            size.append(math.ceil((length - taps + 1) / stride))
            before.append(0)
    done = 0
    for _ in range(batch):
        for at in itertools.product(*map(range, size)):
            for tap in itertools.product(*map(range, window)):
                where = [a * s + t - b for a, s, t, b in zip(at, strides, tap, before, strict=True)]
                if all(0 <= w < n for w, n in zip(where, image, strict=True)):
                    for _ in range(into):
                        for _ in range(out):
                            done += 2
    return done, tuple(size)


networks = st.builds(
    dict,
    image=st.lists(st.integers(1, 6), min_size=2, max_size=3).map(tuple),
    taps=st.lists(st.integers(1, 3), min_size=3, max_size=3),
    strides=st.lists(st.integers(1, 2), min_size=3, max_size=3),
    into=st.integers(1, 3),
    out=st.integers(1, 3),
    batch=st.integers(1, 2),
    padding=st.sampled_from(["SAME", "VALID"]),
    first=st.booleans(),
    name=st.sampled_from(["Conv", "_MklNativeConv", "_MklConv"]),
)


@settings(max_examples=150, deadline=None)
@given(networks)
def test_a_convolution_and_its_gradients_do_what_loops_do(made):
    image, rank = made["image"], len(made["image"])
    window, strides = tuple(made["taps"][:rank]), tuple(made["strides"][:rank])
    if made["padding"] == "VALID":
        window = tuple(min(pair) for pair in zip(window, image, strict=True))
    into, out, batch = made["into"], made["out"], made["batch"]
    expected, size = loops(image, window, into, out, strides, made["padding"], batch)
    filter_ = (*window, into, out)

    def arranged(space, channels, first=batch):
        return (first, channels, *space) if made["first"] else (first, *space, channels)

    def key(kind, *shapes):
        layout = ("NCHW" if rank == 2 else "NCDHW") if made["first"] else "NHWC"
        return convolution(
            kind,
            *shapes,
            strides=arranged(strides, 1, 1),
            padding=made["padding"],
            layout=layout,
        )

    name = f"{made['name']}{rank}D"
    data, gradient = arranged(image, into), arranged(size, out)
    forward = keyed(key(name, data, filter_), FLOAT * math.prod(gradient))
    assert operations(forward) == expected

    backward = keyed(key(f"{name}BackpropInput", None, filter_, gradient), FLOAT * math.prod(data))
    # with a stride, images of several sizes may have the same bytes
    assert operations(backward) in (expected, None)
    if max(strides) == 1 or made["padding"] == "VALID":
        assert operations(backward) == expected

    known = filters([forward])
    bytes_ = FLOAT * math.prod(filter_)
    to_filter = keyed(key(f"{name}BackpropFilter", data, None, gradient), bytes_)
    assert operations(to_filter, known) == expected
    assert operations(to_filter) in (expected, None)
    with_bias = keyed(
        key(f"{name}BackpropFilterWithBias", data, None, gradient), bytes_ + FLOAT * out
    )
    assert operations(with_bias, known) == expected + math.prod(gradient)


def test_a_convolution_worked_by_hand():
    # ResNet-50's first layer: 112 * 112 places, of 7 * 7 * 3 inputs, 64 outputs, pad and all:
    # 2 * 112 * 112 * 147 * 64 = 236 027 904; explicit padding of 3 cuts three lines at the start
    # and two at the end: (112 * 7 - 3 - 2 - ...) pairs each way
    pairs = sum(0 <= w * 2 + t - 3 < 224 for w in range(112) for t in range(7))
    assert pairs == 112 * 7 - (3 + 1) - 2
    padded = ", explicit_paddings=[0,0,3,3,3,3,0,0]"
    key = convolution(
        "Conv2D",
        (1, 224, 224, 3),
        (7, 7, 3, 64),
        strides=(1, 2, 2, 1),
        padding="EXPLICIT",
        more=padded,
    )
    assert operations(keyed(key)) == 2 * pairs**2 * 3 * 64
    valid = convolution(
        "Conv2D", (1, 230, 230, 3), (7, 7, 3, 64), strides=(1, 2, 2, 1), padding="VALID"
    )
    assert operations(keyed(valid)) == 236_027_904


def test_a_window_beyond_the_image_is_no_work():
    # 3x3 windows on images of one element: one product each, not nine
    key = convolution("Conv2D", (64, 1, 1, 512), (3, 3, 512, 512), strides=(1, 1, 1, 1))
    assert operations(keyed(key)) == 2 * 64 * 512 * 512


def test_dilated_windows():
    key = convolution(
        "Conv2D",
        (1, 9, 9, 1),
        (3, 3, 1, 1),
        strides=(1, 1, 1, 1),
        padding="VALID",
        dilations=(1, 4, 4, 1),
    )
    assert operations(keyed(key)) == 2 * 9  # a single place


def test_depthwise():
    shape, weights = (2, 8, 8, 6), (3, 3, 6, 2)
    key = convolution(
        "_MklNativeDepthwiseConv2dNative", shape, weights, strides=(1, 1, 1, 1), padding="VALID"
    )
    expected = 2 * (2 * 6 * 6) * 9 * 12
    forward = keyed(key)
    assert operations(forward) == expected
    to_filter = convolution(
        "DepthwiseConv2dNativeBackpropFilter",
        shape,
        None,
        (2, 6, 6, 12),
        strides=(1, 1, 1, 1),
        padding="VALID",
    )
    assert operations(keyed(to_filter, FLOAT * math.prod(weights))) == expected
    to_input = convolution(
        "DepthwiseConv2dNativeBackpropInput",
        None,
        weights,
        (2, 6, 6, 12),
        strides=(1, 1, 1, 1),
        padding="VALID",
    )
    assert operations(keyed(to_input, FLOAT * math.prod(shape))) == expected


def test_grouped():
    # four groups of 2 channels in and 4 out: a quarter of the plain work
    key = convolution("Conv2D", (1, 5, 5, 8), (1, 1, 2, 16), strides=(1, 1, 1, 1))
    forward = keyed(key)
    assert operations(forward) == 2 * 25 * 2 * 16
    to_filter = convolution(
        "Conv2DBackpropFilter", (1, 5, 5, 8), None, (1, 5, 5, 16), strides=(1, 1, 1, 1)
    )
    assert operations(keyed(to_filter, FLOAT * 32), filters([forward])) == 2 * 25 * 2 * 16
    to_input = convolution(
        "Conv2DBackpropInput", None, (1, 1, 2, 16), (1, 5, 5, 16), strides=(1, 1, 1, 1)
    )
    assert operations(keyed(to_input, FLOAT * 200)) == 2 * 25 * 2 * 16


def test_a_transposed_convolution_is_a_gradient_to_its_input():
    # DCGAN's 7x7 to 14x14 at stride 2: each element of the 7x7 image meets each 5x5 weight that
    # falls on the 14x14 result
    pairs = sum(0 <= w * 2 + t - 1 < 14 for w in range(7) for t in range(5))
    key = convolution(
        "Conv2DBackpropInput", None, (5, 5, 64, 128), (64, 7, 7, 128), strides=(1, 2, 2, 1)
    )
    op = keyed(key, FLOAT * 64 * 14 * 14 * 64)
    assert operations(op) == 2 * 64 * pairs**2 * 64 * 128


def test_what_a_gradient_s_key_does_not_tell_is_not_guessed():
    # 9 weights a pair of channels: 3x3, 1x9 or 9x1, which differ on so small an image
    key = convolution(
        "Conv2DBackpropFilter", (1, 4, 4, 2), None, (1, 4, 4, 2), strides=(1, 1, 1, 1)
    )
    op = keyed(key, FLOAT * 36)
    assert operations(op) is None
    there = [
        keyed(convolution("Conv2D", (1, 4, 4, 2), shape, strides=(1, 1, 1, 1)))
        for shape in ((3, 3, 2, 2), (9, 1, 2, 2))
    ]
    assert operations(op, filters(there[:1])) == 2 * 10 * 10 * 4
    assert operations(op, filters(there)) is None, "both are in this job"


def test_fused_kernels_do_more():
    one = 2 * 2 * 6 * 6 * 9 * 3 * 8
    each = 2 * 6 * 6 * 8
    for fused, more in (
        ("BiasAdd", 1),
        ("BiasAdd,Relu", 2),
        ("BiasAdd,Add,Relu", 3),
        ("FusedBatchNorm,Relu", 4),
    ):
        key = convolution(
            "_MklNativeFusedConv2D",
            (2, 8, 8, 3),
            (3, 3, 3, 8),
            strides=(1, 1, 1, 1),
            padding="VALID",
            more=f", fused_ops=[{fused}]",
        )
        assert operations(keyed(key)) == one + more * each
    unheard = key.replace("FusedBatchNorm,Relu", "BiasAdd,Frobnicate")
    assert operations(keyed(unheard)) is None


@pytest.mark.parametrize(
    ("key", "output_bytes", "expected"),
    [
        # products: 2 * M * K * N
        ("MatMul(float[3,5],float[5,7]){transpose_a=false, transpose_b=false}", 84, 210),
        ("_MklMatMul(float[5,3],float[5,7]){transpose_a=true, transpose_b=false}", 84, 210),
        ("MatMul(float[3,5],float[7,5]){transpose_a=false, transpose_b=true}", 84, 210),
        ("MatMul(float[5,3],float[7,5]){transpose_a=true, transpose_b=true}", 84, 210),
        ("MatMul(float[3,5],float[7,5]){transpose_a=false, transpose_b=false}", 84, None),
        ("BatchMatMulV2(float[2,1,3,5],float[4,5,7]){adj_x=false, adj_y=false}", 0, 8 * 210),
        ("_MklBatchMatMulV2(float[8,3,5],float[8,7,5]){adj_x=false, adj_y=true}", 0, 8 * 210),
        ("Einsum(float[2,3,5],float[5,7]){equation=abc,cd->abd}", 0, 2 * 210),
        ("Einsum(float[2,3,5],float[5,7]){equation=...c,cd->...d}", 0, None),
        ("_MklNativeFusedMatMul(float[3,5],float[5,7],float[7]){fused_ops=[BiasAdd]}", 84, 231),
        ("MatMul(int32[3,5],int32[5,7])", 84, None),
        # elements
        ("Relu(float[4,6])", 96, 24),
        ("AddV2(float[4,1],float[6])", 96, 24),
        ("Mul(float[],float[4,6])", 96, 24),
        ("Mul(int64[4],int64[4])", 32, 0),
        ("SquaredDifference(float[1,6],float[4,6])", 96, 48),
        ("AddN(float[4,6],float[4,6],float[4,6])", 96, 48),
        ("TanhGrad(float[4,6],float[4,6])", 96, 72),
        ("SelectV2(bool[4,6],float[4,6],float[])", 96, 24),
        ("BiasAdd(float[2,3,4,5],float[3]){data_format=NCHW}", 480, 120),
        ("BiasAddGrad(float[4,6]){data_format=NHWC}", 24, 24),
        ("Softmax(float[4,6])", 96, 120),
        ("Sum(float[4,6],int32[1]){keep_dims=false}", 16, 24),
        ("Mean(float[4,6,1],int32[1]){keep_dims=false}", 96, 0),
        ("FusedBatchNormV3(float[4,6],float[6],float[6],float[6],float[6]){is_training=true}",
         96, 168),
        ("_FusedBatchNormEx(float[4,6],float[6],float[6],float[6],float[6]){is_training=false}",
         96, 72),
        ("ResourceApplyAdam(resource[],resource[],resource[],float[],float[],float[],float[],"
         "float[],float[],float[9])", 0, 108),
        ("AssignAddVariableOp(resource[],float[9])", 0, 9),
        # moves
        ("Reshape(float[64],int32[4]){Tshape=int32}", 256, 0),
        ("Tile(float[1,64],int32[2])", 1024, 0),
        ("_Arg()", 200, 0),
        # windows: 2x2 ones at stride 2, 3x3 ones padded
        ("MaxPool(float[2,4,4,3]){data_format=NHWC, ksize=[1,2,2,1], padding=VALID, "
         "strides=[1,2,2,1]}", 96, 2 * 4 * 3 * 4),
        ("_MklNativeAvgPool(float[1,4,4,1]){data_format=NHWC, ksize=[1,3,3,1], padding=SAME, "
         "strides=[1,1,1,1]}", 64, 100 + 16),
        ("_MklNativeAvgPoolGrad(int32[4],float[1,4,4,1]){data_format=NHWC, ksize=[1,3,3,1], "
         "padding=SAME, strides=[1,1,1,1]}", 64, 100 + 16),
        ("_MklNativeMaxPoolGrad(float[1,4,4,1],float[1,2,2,1],float[1,2,2,1],uint8[4]){"
         "ksize=[1,2,2,1], padding=VALID, strides=[1,2,2,1]}", 64, 4),
        # not known
        ("StatelessRandomUniformV2(int32[4],uint64[1],uint64[2],int32[])", 100, None),
        ("Mul(complex64[4],complex64[4])", 32, None),
    ],
)  # fmt: skip
def test_worked_by_hand(key, output_bytes, expected):
    assert operations(keyed(key, output_bytes)) == expected


@pytest.mark.parametrize(
    ("key", "output_bytes", "expected"),
    [
        ("MatMul(float[3,5],float[5,7])", 84, 60 + 140 + 84),
        ("Reshape(float[64],int32[4])", 256, 0),
        ("Mean(float[4,1],int32[1])", 16, 0),
        ("Slice(float[1000],int32[1],int32[1])", 40, 88),
        ("Shape(float[1000])", 4, 4),
        ("AssignAddVariableOp(resource[],float[9])", 0, 108),
        ("ResourceApplyAdam(resource[],resource[],resource[],float[],float[9])", 0, 7 * 36),
        ("GreaterEqual(float[8],float[])", 8, 32 + 4 + 8),
        ("DecodeJpeg(string[])", 100, None),
    ],
)
def test_bytes_that_must_move(key, output_bytes, expected):
    assert moved(keyed(key, output_bytes)) == expected


@pytest.mark.parametrize("key", ["Conv2D(float[?],float[3,3,1,1])", "what is this", "Relu(none)"])
def test_a_key_that_cannot_be_read_has_no_figures(key):
    op = keyed("Relu(float[4])", 16)
    broken = type(op)(key, "Relu", (), 1, 16, None, ())
    assert operations(broken) is None
    assert moved(broken) is None
    assert filters([broken]) == frozenset()


@given(
    st.text(max_size=30) | st.lists(st.integers(-2, 3), min_size=3, max_size=5).map(str),
    st.integers(0, 999),
)
def test_no_attribute_makes_it_raise(text, output_bytes):
    data = "float[2,3,3,2],float[2,3,3,2],float[2,3,3,2]"
    text = text.replace(" ", "")
    names = ("Conv2D", "Conv2DBackpropInput", "MaxPool", "AvgPoolGrad", "MatMul", "Einsum")
    for name in names:
        key = f"{name}({data}){{ksize={text}, padding=SAME, strides={text}}}"
        op = type(keyed("Relu(float[1])"))(key, name, (), 1, output_bytes, None, ())
        found = operations(op)
        assert found is None or found >= 0
