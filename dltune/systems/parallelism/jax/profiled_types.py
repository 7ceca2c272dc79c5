"""Operators of profiled TensorFlow steps, with their equivalents in JAX.

A profile's operator begins with an op, and has the kinds of ops that follow, in no order
(`model/profiled.py`). Ops that work number by number are one pass, as XLA makes one of them: the
function that takes the longest represents all. Ops that only move numbers are none, nor are
metrics, for which no gradient waits. Ops that are not in these lists are left unchanged, and
refused where operators are timed.
"""

from __future__ import annotations

import dataclasses
import re

from dltune.analysis.flops import ELEMENTWISE, MOVES
from dltune.systems.parallelism.model.request import Request

_BEGINS = {
    **{"Conv2D": "conv", "DepthwiseConv2dNative": "depthwise", "MatMul": "dense"},
    **{"MaxPool": "max_pool", "AvgPool": "avg_pool", "BatchMatMul": "dense", "Einsum": "einsum"},
    **{"Add": "add", "AddN": "add", "Sub": "add", "Mul": "multiply", "Mean": "mean"},
    **{"Sum": "mean", "Concat": "concat", "Gather": "embedding", "ResourceGather": "embedding"},
    **dict.fromkeys(("Softmax", "LogSoftmax"), "softmax"),
    **dict.fromkeys(
        ("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits"), "loss"
    ),
    **{"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid"},
}
# the first of these that is there represents all that works number by number
_EACH = {
    **dict.fromkeys(("Erf", "Erfc", "GeluExact", "GeluApproximate"), "gelu"),
    **{"Tanh": "tanh", "Sigmoid": "sigmoid", "Swish": "sigmoid"},
    **dict.fromkeys(("Relu", "Relu6", "LeakyRelu"), "relu"),
    **dict.fromkeys(("Elu", "Selu", "Softplus", "Exp", "Log"), "tanh"),
}
_NORM = {"Rsqrt", "SquaredDifference"}
_SCALING = {"Add", "Mul", "Neg", "Sub"}
_NORMS = {"FusedBatchNorm", "FusedBatchNormEx"}
# of metrics and running statistics, and ops that hand values on
_ASIDE = {
    *("All", "Any", "ArgMax", "ArgMin", "AssignAddVariableOp", "AssignSubVariableOp"),
    *("AssignVariableOp", "Bitcast", "BitwiseAnd", "CheckNumerics", "InTopK", "LogicalAnd"),
    *("LogicalNot", "LogicalOr", "Max", "Mean", "Min", "OptionalFromValue", "Prod"),
    *("ReadVariableOp", "Retval", "Squeeze", "StopGradient", "Sum", "TopK", "UnaryOpsComposition"),
    *("AddN", "AccumulateN"),
}


def plain(request: Request) -> Request:
    """The same part, of a type that `operators.operator` knows where there is one."""
    first, *followers = request.type.split(" + ")
    head, *words = first.split()
    if head not in _BEGINS:
        return request
    told = dict(word.split("=", 1) for word in words if "=" in word)
    fused = told.get("fused_ops", "").strip("[]")
    follow = {*followers, *(fused.split(",") if fused else ())}
    if follow - ELEMENTWISE.keys() - MOVES - _NORMS - _ASIDE - _EACH.keys():
        return request
    begin = _BEGINS[head]
    if head == "Mean" and follow >= _NORM and (request.output,) == request.inputs:
        begin, follow = "layer_norm", follow - _NORM - _SCALING
    window = _window(words, told)
    if window is None and begin in ("conv", "depthwise", "max_pool", "avg_pool"):
        return request
    equation = [told.get("equation", "")] if begin == "einsum" else []
    return dataclasses.replace(request, type=" ".join([begin, *equation, *_after(follow, window)]))


def _window(words: list[str], told: dict[str, str]) -> str | None:
    """Its sides and its stride, where that is the same both ways."""
    strides = [*map(int, re.findall(r"\d+", told.get("strides", "")))]
    sides = [*map(int, re.findall(r"\d+", told.get("ksize", "")))][1:3]
    sides = sides or [int(n) for word in words if "=" not in word for n in word.split("x")]
    if len(strides) != 4 or len(sides) != 2 or strides[1] != strides[2]:
        return None
    return f"{sides[0]}x{sides[1]}/{strides[1]}"


def _after(follow: set[str], window: str | None) -> list[str]:
    words = [window] if window else []
    if "BiasAdd" in follow:
        words.append("bias")
    if follow & _NORMS or follow >= _NORM:
        words.append("batch_norm")
        follow = follow - _NORM - _SCALING
    if each := next((word for type, word in _EACH.items() if type in follow), None):
        words.append(each)
    elif follow & ELEMENTWISE.keys() - {"BiasAdd"}:
        words.append("scale")
    return words
