"""Ops that TensorFlow rewrites others into, by their plain ops, which it will rewrite again.

Kernels named _MklNative... and _Mkl... come from oneDNN's layout pass, _Fused... from Grappler's
remapper.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dltune.schemas.graph import OpKey

_FUSED = {
    "FusedConv2D": "Conv2D",
    "FusedDepthwiseConv2dNative": "DepthwiseConv2dNative",
    "FusedMatMul": "MatMul",
}
_WITH_BIAS = "WithBias"
# what the remapper fuses into the ops above, each taking the result of the one before
_FOLLOWERS = ("BiasAdd", "Relu", "Relu6", "Elu", "LeakyRelu", "Tanh", "Sigmoid")


@dataclass(frozen=True)
class Plain:
    """`then`: plain ops after the first, each on the result of the one before it. `bias_gradient`:
    a BiasAddGrad stands beside a Conv2DBackpropFilter, on the same gradient."""

    type: str
    then: tuple[str, ...] = ()
    bias_gradient: bool = False


def plain(op: OpKey) -> Plain:
    """Raises ValueError for a fusion whose parts are not known."""
    name = re.sub(r"^_(MklNative|Mkl)?", "", op.type) if op.type.startswith("_") else op.type
    if name == op.type:
        return Plain(name)
    if name.endswith(_WITH_BIAS):
        return Plain(name.removesuffix(_WITH_BIAS), bias_gradient=True)
    if name not in _FUSED:
        return Plain(name)
    then = tuple(filter(None, op.attributes.get("fused_ops", "").strip("[]").split(",")))
    if unknown := [follower for follower in then if follower not in _FOLLOWERS]:
        raise ValueError(f"{op.type} contains {unknown[0]}, for which dltune cannot make inputs")
    return Plain(_FUSED[name], then)
