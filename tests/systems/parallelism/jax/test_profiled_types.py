"""What JAX has in place of a profile's operators, without JAX."""

from __future__ import annotations

import pytest

from dltune.systems.parallelism.jax.operator_times import Request, unknown_word
from dltune.systems.parallelism.times import plain_request

NORM = "Add + AssignVariableOp + Mean + Mul + Reshape + Rsqrt + SquaredDifference + Squeeze + Sub"
ROWS, PICTURE = (8, 16), (8, 6, 6, 4)


def of(type: str, *inputs: tuple[int, ...], output: tuple[int, ...] = ROWS) -> str:
    found = plain_request(Request(type, inputs or (ROWS,), output))
    assert (found.inputs, found.output) == (inputs or (ROWS,), output)
    return found.type


@pytest.mark.parametrize(
    ("profiled", "plainly"),
    [
        (
            "Conv2D 3x3 strides=[1,2,2,1] padding=SAME fused_ops=[BiasAdd,Relu] + Reshape",
            "conv 3x3/2 bias relu",
        ),
        (
            f"Conv2D 1x1 strides=[1,1,1,1] padding=VALID fused_ops=[BiasAdd] + {NORM}",
            "conv 1x1/1 bias batch_norm",
        ),
        ("DepthwiseConv2dNative 3x3 strides=[1,1,1,1] padding=SAME", "depthwise 3x3/1"),
        ("MaxPool ksize=[1,3,3,1] strides=[1,2,2,1] padding=VALID", "max_pool 3x3/2"),
        ("MatMul + BiasAdd + Erfc + Mul + Neg + Reshape + Square", "dense bias gelu"),
        ("BatchMatMul + Add + Reshape", "dense scale"),
        ("MatMul fused_ops=[BiasAdd] + ArgMax + AssignVariableOp + Sum", "dense bias"),
        ("Einsum equation=BTNH,BSNH->BNTS + Mul + Select", "einsum BTNH,BSNH->BNTS scale"),
        ("AddN + Add + Relu", "add relu"),
        ("SparseSoftmaxCrossEntropyWithLogits + Retval + Sum", "loss"),
        ("Gather + Reshape", "embedding"),
        ("Mean + Add + Mul + Neg + Rsqrt + SquaredDifference + Sub", "layer_norm"),
    ],
)
def test_the_same_work(profiled: str, plainly: str) -> None:
    assert of(profiled) == plainly
    assert unknown_word(Request(plainly, (ROWS,), ROWS)) is None


def test_a_mean_of_pictures_is_no_norm() -> None:
    assert of("Mean + Reshape", PICTURE, output=(8, 4)) == "mean"


@pytest.mark.parametrize(
    "type",
    [
        "Betainc",
        "MatMul + Betainc",
        "Conv2D 3x3 strides=[1,2,1,1] padding=SAME",
        "Conv2DBackpropInput 3x3 strides=[1,2,2,1] padding=SAME",
    ],
)
def test_what_is_not_known_is_left_as_it_is(type: str) -> None:
    assert of(type) == type
    assert unknown_word(Request(type, (ROWS,), ROWS)) == type.split()[0]


def test_what_is_plain_stays_so() -> None:
    for type in ("conv 3x3/2 bias relu", "lstm", "dense bias softmax"):
        assert of(type) == type
