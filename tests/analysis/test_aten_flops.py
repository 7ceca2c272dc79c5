"""What PyTorch's ops compute, against counts made by hand and by loops."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.analysis import flops
from dltune.schemas.profile import Op


def op(key: str, output_bytes: int = 0) -> Op:
    return Op(key, key.partition("(")[0], (), 1, output_bytes, None, ())


@pytest.mark.parametrize(
    ("key", "operations"),
    [
        ("aten::mm(float[3,4],float[4,5])", 2 * 3 * 4 * 5),
        ("aten::addmm(float[5],float[3,4],float[4,5])", 2 * 3 * 4 * 5 + 15),
        ("aten::linear(float[2,3,4],float[5,4],float[5])", 2 * 6 * 4 * 5 + 30),
        ("aten::linear(float[2,3,4],float[5,4])", 2 * 6 * 4 * 5),
        ("aten::bmm(float[7,3,4],float[7,4,5])", 7 * 2 * 3 * 4 * 5),
        ("aten::baddbmm(float[7,3,5],float[7,3,4],float[7,4,5])", 7 * (2 * 3 * 4 * 5 + 15)),
        ("aten::matmul(float[7,3,4],float[4,5])", 7 * 2 * 3 * 4 * 5),
        ("aten::mv(float[3,4],float[4])", 2 * 3 * 4),
        ("aten::dot(float[4],float[4])", 2 * 4),
        ("aten::mm(float[3,4],float[3,5])", None),
        ("aten::mm(int64[3,4],int64[4,5])", None),
        ("aten::relu_(float[6,7])", 42),
        ("aten::add(float[6,7],float[7])", 42),
        ("aten::add(int64[6,7],int64[7])", 0),
        ("aten::addcdiv_(float[6],float[6],float[6])", 18),
        ("aten::_softmax(float[6,7])", 5 * 42),
        ("aten::_log_softmax_backward_data(float[6,7],float[6,7])", 4 * 42),
        ("aten::native_batch_norm(float[2,3,4,4],float[3],float[3],float[3],float[3])", 7 * 96),
        ("aten::view(float[6,7])", 0),
        ("aten::convolution_backward(float[1,1,3,3],float[1,1,4,4],float[1,1,2,2])"
         "{stride=[1,1], padding=[0,0], dilation=[1,1], output_mask=[true,true]}", None),
        ("aten::conv2d(float[1,1,4,4],float[1,1,2,2]){stride=[1,1], dilation=[1,1]}", None),
        ("aten::copy_(float[6,7],float[6,7])", 0),
        ("aten::mul(complex64[6],complex64[6])", None),
        ("aten::unheard_of(float[6])", None),
        ("aten::_foreach_add_(){tensors=2, elements=10}", None),
        # two queries of width 4, three keys, one head: products, and a softmax of six scores
        ("aten::scaled_dot_product_attention(float[1,1,2,4],float[1,1,3,4],float[1,1,3,4])",
         2 * 2 * 3 * 4 * 2 + 5 * 6),
    ],
)  # fmt: skip
def test_counted_by_hand(key: str, operations: int | None) -> None:
    assert flops.operations(op(key)) == operations


SIZES = st.integers(1, 3)


@given(
    *[SIZES] * 3, st.tuples(SIZES, SIZES), st.tuples(st.integers(3, 6), st.integers(3, 6)),
    st.integers(1, 2), st.integers(0, 1), st.integers(1, 2), st.booleans(),
)  # fmt: skip
def test_a_convolution_multiplies_and_adds_at_each_element_in_each_window(
    batch, channels, filters, window, space, stride, padding, dilation, bias
) -> None:
    """Channels in two groups. Elements of the padding are none."""
    image, filter_ = (batch, 2 * channels, *space), (2 * filters, channels, *window)
    key = (
        f"(float[{','.join(map(str, image))}],float[{','.join(map(str, filter_))}]"
        f"{',float[' + str(2 * filters) + ']' if bias else ''})"
        f"{{stride=[{stride},{stride}], padding=[{padding}], dilation=[{dilation},{dilation}], "
        "transposed=false, groups=2}"
    )
    along = [
        range(0, size + 2 * padding - (taps - 1) * dilation, stride)
        for size, taps in zip(space, window, strict=True)
    ]
    if not all(along):
        return
    pairs = sum(
        all(
            0 <= start + tap * dilation - padding < size
            for start, tap, size in zip(corner, taps, space, strict=True)
        )
        for corner in itertools.product(*along)
        for taps in itertools.product(*map(range, window))
    )
    once = 2 * batch * pairs * channels * 2 * filters
    results = batch * len(along[0]) * len(along[1]) * 2 * filters
    for name in ("conv2d", "convolution", "_convolution"):
        assert flops.operations(op(f"aten::{name}{key}")) == once + results * bias
    gradient = f"float[{batch},{2 * filters},{len(along[0])},{len(along[1])}]"
    for mask, count in (("true,true,false", 2 * once), ("false,true,true", once + results)):
        backward = f"aten::convolution_backward({gradient},{key[1:-1]}, output_mask=[{mask}]}}"
        assert flops.operations(op(backward)) == count


def test_bytes() -> None:
    assert flops.moved(op("aten::mm(float[3,4],float[4,5])", 60)) == 4 * (12 + 20 + 15)
    assert flops.moved(op("aten::add(float[6,7],float[7])")) == 4 * (42 + 7 + 42)
    assert flops.moved(op("aten::view(float[6,7])", 168)) == 0


def test_factors() -> None:
    from dltune.analysis.keys import parse

    key = parse(op("aten::linear(float[2,3,4],float[5,4],float[5])"))
    assert key is not None
    assert flops.matrix_factors(key) == (1, 6, 5, 4)
