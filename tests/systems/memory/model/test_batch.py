"""A step as it would be with more examples, or with fewer."""

from __future__ import annotations

import msgspec
import pytest
import synthetic

from dltune.base.errors import UsageError
from dltune.schemas.profile import Op, Tensor
from dltune.systems.memory.model.profiled_step import batched, measured

HERE = synthetic.machine(2)


def op(key: str) -> Op:
    return Op(key, key.partition("(")[0], (), 1, 0, 1.0, ())


def node(name, index, inputs, bytes, *, seconds=1.0, scratch=None):
    return msgspec.structs.replace(
        synthetic.node(name, index, inputs),
        outputs=(Tensor("float", bytes),),
        start=0.0,
        end=seconds,
        scratch=scratch,
    )


def step(ops, nodes):
    profile = synthetic.profile(HERE, [op(key) for key in ops], {"train": nodes})
    (found,) = profile.steps
    return batched(profile, found, measured(found))


# four examples; the weights have a multiple of as many rows
DENSE = step(
    [
        "IteratorGetNext()",
        "ReadVariableOp(resource[])",
        "MatMul(float[4,8],float[8,6])",
        "AddV2(float[4,6],float[8,6])",
        "MatMul(float[4,8],float[4,6]){transpose_a=true}",
        "ResourceApplyGradientDescent(resource[],float[8,6],float[8,6])",
    ],
    [
        node("IteratorGetNext_batch", 0, [], 64),
        synthetic.node("VarHandleOp_handle", None),
        node("ReadVariableOp_weights", 1, [1], 96),
        node("MatMul_product", 2, [0, 2], 96, seconds=2.0, scratch=10),
        node("AddV2_sum", 3, [3, 2], 96),
        node("MatMul_gradient", 4, [0, 4], 96, seconds=3.0),
        node("ResourceApplyGradientDescent_step", 5, [1, 2, 5], 0),
    ],
)


def test_what_holds_examples_grows_and_weights_do_not():
    assert DENSE.batch == 4
    tensors = DENSE.step.graph.tensors
    grown = {
        DENSE.step.graph.names[node].partition("_")[2]: 0 for node in tensors.producer[DENSE.grows]
    }
    # the gradient has the shape of the weights
    assert set(grown) == {"batch", "product", "sum"}
    twice = DENSE.of(8)
    names = [twice.graph.names[node].partition("_")[2] for node in tensors.producer]
    bytes = list(zip(names, twice.graph.tensors.bytes.tolist(), strict=True))
    assert bytes == [
        ("batch", 128),
        ("handle", 256),
        ("weights", 96),
        ("product", 192),
        ("product", 20),  # what its kernel takes
        ("sum", 192),
        ("gradient", 96),
        ("step", 0),
    ]
    assert twice.seconds == [2.0, 0.0, 1.0, 4.0, 2.0, 6.0, 1.0]


def test_with_as_many_examples_it_is_as_measured():
    same = DENSE.of(4)
    assert same.seconds == DENSE.step.seconds
    assert same.graph.tensors.bytes.tolist() == DENSE.step.graph.tensors.bytes.tolist()


def test_a_step_without_a_batch_is_refused():
    with pytest.raises(UsageError, match="batch dimension"):
        step(["Add(float[])"], [node("Add_a", 0, [], 4)])
