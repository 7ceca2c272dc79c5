"""Where a key holds the batch, and where a dimension only happens to be as large."""

from __future__ import annotations

import msgspec
import pytest
import synthetic

from dltune.base.errors import UsageError
from dltune.profile.standalone import batch_of, channels_of, with_batch
from dltune.schemas.graph import parse_key
from dltune.simulate.machine_transfer import Law


def moved(key: str, old: int = 64, new: int = 256, channels: frozenset[int] = frozenset()) -> str:
    return str(with_batch(parse_key(key), old, new, channels=channels))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("Relu(float[64,8,8,64])", "Relu(float[256,8,8,64])"),
        ("Mul(float[64,128],float[])", "Mul(float[256,128],float[])"),
        # a filter of 64 rows is none of 64 examples
        (
            "Conv2D(float[64,9,9,64],float[64,3,64,8])",
            "Conv2D(float[256,9,9,64],float[64,3,64,8])",
        ),
        (
            "_MklNativeFusedConv2D(float[64,9,9,3],float[3,3,3,64],float[64]){fused_ops=[BiasAdd]}",
            "_MklNativeFusedConv2D(float[256,9,9,3],float[3,3,3,64],float[64]){fused_ops=[BiasAdd]}",
        ),
        (
            "Conv2DBackpropInput(int32[4],float[3,3,64,64],float[64,9,9,64])",
            "Conv2DBackpropInput(int32[4],float[3,3,64,64],float[256,9,9,64])",
        ),
        # forward, and the weights' gradient, which contracts over examples
        (
            "_MklMatMul(float[64,100],float[64,10]){transpose_a=false}",
            "_MklMatMul(float[256,100],float[64,10]){transpose_a=false}",
        ),
        (
            "_MklMatMul(float[64,100],float[64,10]){transpose_a=true}",
            "_MklMatMul(float[256,100],float[256,10]){transpose_a=true}",
        ),
        (
            "_MklNativeMaxPoolGrad(float[64,8,8,2],float[64,4,4,2],float[64,4,4,2],uint8[2048])",
            "_MklNativeMaxPoolGrad(float[256,8,8,2],float[256,4,4,2],float[256,4,4,2],uint8[8192])",
        ),
        # labels
        (
            "SparseSoftmaxCrossEntropyWithLogits(float[64,10],int64[64])",
            "SparseSoftmaxCrossEntropyWithLogits(float[256,10],int64[256])",
        ),
    ],
)
def test_examples_are_replaced_and_nothing_else(key, expected):
    assert moved(key) == expected
    assert moved(moved(key), 256, 64) == key


def test_a_vector_as_long_as_the_batch():
    assert moved("Mul(float[64],float[])") == "Mul(float[256],float[])"
    bias = "Mul(float[64],float[])"
    assert moved(bias, channels=frozenset({64})) == bias, "it may as well be a bias"


def test_the_batch_of_a_profile_is_that_of_its_heavy_ops():
    there = synthetic.machine(2)
    ops = [
        synthetic.op("MatMul", Law(1e-4, 0, 0), there, key="MatMul(float[24,10],float[10,500])"),
        synthetic.op(
            "Conv2D", Law(1e-2, 0, 0), there, key="Conv2D(float[24,9,9,3],float[3,3,3,8])"
        ),
        synthetic.op("Mul", Law(1e-3, 0, 0), there, key="Mul(float[512,512],float[])"),
    ]
    assert batch_of(ops) == 24
    assert channels_of(ops) == {10, 500, 3, 8, 512}


def test_a_profile_without_batches():
    there = synthetic.machine(2)
    op = msgspec.structs.replace(synthetic.op("Mul", Law(1, 0, 0), there), key="Mul(float[8])")
    with pytest.raises(UsageError, match="no op of this profile has a batch dimension"):
        batch_of([op])
