"""Keys as the plugin writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.schemas.graph import SIZES, OpKey, TensorType, parse_key

CONVOLUTION = (
    "_MklNativeConv2DBackpropInput(int32[4],float[5,5,128,256],float[64,7,7,256])"
    "{data_format=NHWC, dilations=[1,1,1,1], padding=SAME, strides=[1,2,2,1]}"
)


def test_a_convolution_s_key():
    op = parse_key(CONVOLUTION)
    assert op.type == "_MklNativeConv2DBackpropInput"
    assert op.inputs[1] == TensorType("float", (5, 5, 128, 256))
    assert op.inputs[2].bytes == 64 * 7 * 7 * 256 * 4
    assert op.attributes["padding"] == "SAME"
    assert op.integers("strides") == (1, 2, 2, 1)
    assert op.integers("ksize") == ()
    assert str(op) == CONVOLUTION


def test_keys_without_inputs_or_attributes():
    assert parse_key("_Arg()") == OpKey("_Arg", (), {})
    assert parse_key("Mul(float[],float[])").inputs == (TensorType("float", ()),) * 2
    assert parse_key("ReadVariableOp(resource[])").inputs[0].bytes == 0


@pytest.mark.parametrize("text", ["", "Mul", "Mul(float)", "Mul(none,float[2])", "Mul(float[?])"])
def test_what_is_no_key_is_refused(text):
    with pytest.raises(ValueError, match=r"is not an op key|without a shape"):
        parse_key(text)


TENSORS = st.builds(
    TensorType, st.sampled_from(sorted(SIZES)), st.lists(st.integers(0, 999), max_size=5).map(tuple)
)
VALUES = st.sampled_from(["true", "SAME", "[1,2,2,1]", "[BiasAdd,Relu]", "0.200000", "-1"])


@given(
    st.from_regex(r"[A-Z_]\w{0,20}", fullmatch=True).filter(str.isascii),
    st.lists(TENSORS, max_size=5).map(tuple),
    st.dictionaries(st.from_regex(r"[a-zA-Z]\w{0,9}", fullmatch=True), VALUES, max_size=4),
)
def test_what_is_written_is_read_again(kind, inputs, attributes):
    op = OpKey(kind, inputs, attributes)
    assert parse_key(str(op)) == op
