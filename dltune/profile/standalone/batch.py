"""The batch dimension of an op's inputs: found in a profile, and replaced in a key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dltune.base.errors import UsageError
from dltune.profile.standalone.rewritten import plain
from dltune.schemas import graph
from dltune.schemas.graph import OpKey, TensorType
from dltune.schemas.profile import Op

# by plain op type, the only inputs that hold examples; the others are filters, biases, shapes
_EXAMPLES = {
    "Conv2D": (0,),
    "Conv2DBackpropInput": (2,),
    "Conv2DBackpropFilter": (0, 2),
    "DepthwiseConv2dNative": (0,),
    "DepthwiseConv2dNativeBackpropInput": (2,),
    "DepthwiseConv2dNativeBackpropFilter": (0, 2),
    "BiasAdd": (0,),
    "BiasAddGrad": (0,),
}


def batch_of(ops: Iterable[Op]) -> int:
    """The batch size: the first dimension of the largest input of most op time.

    Raises UsageError when no op has an input of two dimensions.
    """
    votes: Counter[int] = Counter()
    for op in ops:
        if inputs := [t for t in inputs_of(op.key) if len(t.shape) > 1]:
            largest = max(inputs, key=lambda tensor: tensor.bytes)
            votes[largest.shape[0]] += max(1, round((op.own or 0.0) * op.count * 1e9))
    if not votes:
        raise UsageError(
            "no op of this profile has a batch dimension",
            remedy="leave --batch out, or profile a job that trains on batches",
        )
    return votes.most_common(1)[0][0]


def with_batch(op: OpKey, old: int, new: int, *, channels: frozenset[int]) -> OpKey:
    """`op` for a batch of `new` examples where it now has `old`.

    `channels`: the last dimensions in use in the model. A vector of `old` elements holds examples
    unless `old` is one of them too, when it may as well be a bias; integers are labels.
    """
    kind = plain(op).type
    changed = []
    for index, tensor in enumerate(op.inputs):
        holds = bool(tensor.shape) and tensor.shape[0] == old
        if kind in _EXAMPLES:
            holds = holds and index in _EXAMPLES[kind]
        elif kind == "MatMul" and index == 1:  # rows of the second factor: only where contracted
            holds = (
                holds and op.attributes.get("transpose_a", op.attributes.get("grad_b")) == "true"
            )
        elif len(tensor.shape) == 1:
            holds = holds and (tensor.dtype.startswith("int") or old not in channels)
        if holds:
            tensor = TensorType(tensor.dtype, (new, *tensor.shape[1:]))
        changed.append(tensor)
    made = op.with_inputs(tuple(changed))
    return _workspace(made, old, new) if kind == "MaxPoolGrad" else made


def channels_of(ops: Iterable[Op]) -> frozenset[int]:
    """The last dimensions of all inputs of two dimensions or more."""
    return frozenset(t.shape[-1] for op in ops for t in inputs_of(op.key) if len(t.shape) > 1)


def inputs_of(key: str) -> tuple[TensorType, ...]:
    """The inputs that a key tells; none where it does not tell their shapes."""
    try:
        return graph.parse_key(key).inputs
    except ValueError:
        return ()


def _workspace(op: OpKey, old: int, new: int) -> OpKey:
    """oneDNN's pooling hands its gradient a flat tensor with something for each example."""
    *tensors, last = op.inputs
    if last.dtype != "uint8" or len(last.shape) != 1 or last.elements % old:
        return op
    return op.with_inputs((*tensors, TensorType("uint8", (last.elements // old * new,))))
