"""The plain ops behind those that TensorFlow rewrites them into."""

from __future__ import annotations

import pytest

from dltune.profile.standalone import Plain, plain
from dltune.schemas.graph import parse_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("Conv2D()", Plain("Conv2D")),
        ("_MklMatMul()", Plain("MatMul")),
        ("_MklNativeConv2DBackpropInput()", Plain("Conv2DBackpropInput")),
        ("_MklNativeFusedBatchNormV3()", Plain("FusedBatchNormV3")),
        ("_FusedMatMul(){fused_ops=[BiasAdd,Relu]}", Plain("MatMul", ("BiasAdd", "Relu"))),
        ("_MklNativeFusedConv2D(){fused_ops=[BiasAdd]}", Plain("Conv2D", ("BiasAdd",))),
        (
            "_MklNativeConv2DBackpropFilterWithBias()",
            Plain("Conv2DBackpropFilter", bias_gradient=True),
        ),
    ],
)
def test_plain_ops(key, expected):
    assert plain(parse_key(key)) == expected


def test_an_unknown_fusion_is_refused():
    with pytest.raises(
        ValueError, match="contains FusedBatchNorm, for which dltune cannot make inputs"
    ):
        plain(parse_key("_FusedConv2D(){fused_ops=[FusedBatchNorm]}"))
