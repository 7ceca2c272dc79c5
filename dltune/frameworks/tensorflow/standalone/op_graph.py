"""Graph of a standalone job, built from the keys of its ops. Imports TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.framework import op_def_library, op_def_registry

from dltune.profile.standalone import Plain, Standalone, Task, Value, plain, shape_value
from dltune.schemas import graph
from dltune.schemas.graph import SIZES, OpKey, TensorType

# Inputs of ops

# TensorFlow hands out a slice of a tensor without a copy where it begins on this many bytes
_ALIGNMENT = 64


class View(NamedTuple):
    """Elements from `start` of the buffer of a type."""

    dtype: tf.DType
    start: int
    shape: tuple[int, ...]


class Views:
    """Inputs of many ops as views of one buffer for each type, so that large ones fit in memory.

    Inputs of one op lie one after the other: if they were the same bytes, the op would read half as
    much as it does in a job.
    """

    def __init__(self) -> None:
        self._kept: dict[View, None] = {}

    def place(self, tensor: TensorType, end: int) -> tuple[View, int]:
        """The input after `end` bytes of an op's inputs, and the bytes with it.

        Raises ValueError for a type that has no buffer.
        """
        if tensor.dtype not in SIZES or tensor.dtype.startswith("q"):
            raise ValueError(f"dltune cannot make a tensor of type {tensor.dtype}")
        start = -(-end // _ALIGNMENT) * _ALIGNMENT
        size = SIZES[tensor.dtype]
        view = View(tf.as_dtype(tensor.dtype), start // size, tensor.shape)
        return view, start + tensor.bytes

    def keep(self, views: Iterable[View]) -> None:
        self._kept.update(dict.fromkeys(views))

    def tensors(self) -> dict[View, tf.Tensor]:
        """All views that were kept, as tensors."""
        ends: dict[tf.DType, int] = {}
        for view in self._kept:
            end = view.start + tf.TensorShape(view.shape).num_elements()
            ends[view.dtype] = max(end, ends.get(view.dtype, 0))
        buffers = {dtype: _filled(dtype, end) for dtype, end in ends.items()}
        return {view: _view(buffers[view.dtype], view) for view in self._kept}


def _filled(dtype: tf.DType, elements: int) -> tf.Tensor:
    """Values that every op can work with: no zeros to divide by, indices that exist."""
    if dtype.is_floating:
        wide = tf.float64 if dtype == tf.float64 else tf.float32
        values = tf.random.stateless_uniform([elements], (1, 2), 0.1, 1.0, wide)
        return tf.cast(values, dtype)
    if dtype == tf.bool:
        return tf.random.stateless_uniform([elements], (1, 2)) < 0.5
    return tf.ones([elements], dtype)


def _view(buffer: tf.Tensor, view: View) -> tf.Tensor:
    count = tf.TensorShape(view.shape).num_elements()
    return tf.reshape(buffer[view.start : view.start + count], view.shape)


# The graph

# inputs that hold a shape, an axis or a count: their values are made up, or the op is left out
_VALUES = frozenset(
    {
        *("shape", "dims", "multiples", "size", "begin", "end", "strides", "paddings", "perm"),
        *("reduction_indices", "axis", "input_sizes", "filter_sizes", "orig_input_shape"),
        *("concat_dim", "dim", "dimension", "split_dim", "size_splits", "block_shape", "crops"),
        *("start", "limit", "delta", "num", "k", "num_segments", "output_shape", "counter"),
        *("key", "alg", "seed"),
    }
)
# what an attribute of a type is, from a key's text of it
_READ: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "bool": lambda text: text == "true",
    "type": tf.as_dtype,
    "string": str,
}
_HANDLES = ("resource", "variant", "string")


@dataclass(frozen=True)
class Made:
    """`step(*views)` runs all `count` ops once; `left`: by key why an op is not among them."""

    step: Callable[..., Any]
    views: list[tf.Tensor]
    count: int
    left: dict[str, str]


@dataclass
class _Op:
    """An op to be built: `views` are its data inputs by position, `values` the made-up ones."""

    key: OpKey
    plain: Plain
    views: dict[int, View] = field(default_factory=dict)
    values: dict[int, Value] = field(default_factory=dict)


def build(task: Task) -> Made:
    """The graph of the ops that can be made up. Ops that TensorFlow refuses are left out too."""
    left: dict[str, str] = {}
    views = Views()
    ops = []
    for wanted in task.ops:
        try:
            op = _prepared(wanted, views)
            _try(op)
            ops.append(op)
        except ValueError as error:
            left[wanted.key] = str(error)
    tensors = views.tensors()
    positions = {view: index for index, view in enumerate(tensors)}

    def standalone(*inputs: tf.Tensor) -> tf.Tensor:
        made = [_emit(op, {i: inputs[positions[v]] for i, v in op.views.items()}) for op in ops]
        with tf.control_dependencies([result for results in made for result in results]):
            return tf.constant(0)

    return Made(tf.function(standalone), list(tensors.values()), len(ops), left)


def _prepared(wanted: Standalone, views: Views) -> _Op:
    key = graph.parse_key(wanted.key)
    original = graph.parse_key(wanted.original)
    if handles := [tensor.dtype for tensor in key.inputs if tensor.dtype in _HANDLES]:
        raise ValueError(f"dltune cannot make its input of type {handles[0]}")
    op = _Op(key, plain(key))
    end = 0
    for index, (name, tensor) in enumerate(zip(_names(op), key.inputs, strict=False)):
        if name in _VALUES:
            op.values[index] = shape_value(op.plain.type, name, key, original, wanted)
        else:
            op.views[index], end = views.place(tensor, end)
    if not op.views:
        raise ValueError("all its inputs are values that the op's key does not contain")
    views.keep(op.views.values())
    return op


def _definition(kind: str) -> Any:
    found = op_def_registry.get(kind)
    if found is None:
        raise ValueError("TensorFlow has no ordinary op of that name")
    return found


def _counted(definition: Any, inputs: int) -> list[tuple[Any, int | None]]:
    """The op's arguments; of one that is a list, how many of so many inputs are its own."""
    lists = [bool(a.number_attr or a.type_list_attr) for a in definition.input_arg]
    rest = inputs - lists.count(False)
    return [
        (a, rest if is_list else None)
        for a, is_list in zip(definition.input_arg, lists, strict=True)
    ]


def _names(op: _Op) -> list[str]:
    """The name of each input of the key, as the plain op's definition has it."""
    names = []
    for argument, count in _counted(_definition(op.plain.type), len(op.key.inputs)):
        names += [argument.name] * (1 if count is None else count)
    # biases of a fusion come after the first op's own inputs, and a pooling's workspace is told by
    # the pooling itself
    return names + ["bias"] * op.plain.then.count("BiasAdd")


def _try(op: _Op) -> None:
    """Raises ValueError when TensorFlow refuses the op."""
    with tf.Graph().as_default():
        try:
            _emit(op, {i: tf.compat.v1.placeholder(v.dtype, v.shape) for i, v in op.views.items()})
        except (ValueError, TypeError, tf.errors.OpError) as error:
            reason = str(error).splitlines()[0].split(" for '")[0]
            raise ValueError(f"TensorFlow rejects the inputs that dltune made: {reason}") from None


def _emit(op: _Op, tensors: dict[int, tf.Tensor]) -> list[tf.Tensor]:
    """The op in the current graph; its outputs."""
    inputs = [
        tensors[i] if i in tensors else tf.constant(op.values[i], tf.as_dtype(tensor.dtype))
        for i, tensor in enumerate(op.key.inputs)
        if i in tensors or i in op.values
    ]
    kind, attributes = op.plain.type, op.key.attributes
    if kind == "MaxPool" and attributes.get("workspace_enabled") == "true":
        result = _call("MaxPool", inputs, op.key)
        # it keeps a workspace only for a gradient, which looks at nothing but its size
        return [_call("MaxPoolGrad", [inputs[0], result, result], op.key)]
    if kind == "MaxPoolGrad" and attributes.get("workspace_enabled") == "true":
        result = _call("MaxPool", inputs[:1], op.key)
        return [_call("MaxPoolGrad", [inputs[0], result, inputs[2]], op.key)]
    bias = op.plain.then.count("BiasAdd")
    own = inputs[: len(inputs) - bias]
    result = _call(kind, own, op.key)
    for follower in op.plain.then:
        if follower == "BiasAdd":
            result = tf.raw_ops.BiasAdd(value=result, bias=inputs[-1])
        elif follower == "LeakyRelu":
            alpha = float(attributes.get("leakyrelu_alpha", "0.2"))
            result = tf.raw_ops.LeakyRelu(features=result, alpha=alpha)
        else:
            result = getattr(tf.nn, follower.lower(), tf.nn.relu)(result)
    if op.plain.then:
        # the remapper leaves alone what anything waits for by a control edge
        return [tf.raw_ops.Shape(input=result)]
    if op.plain.bias_gradient:
        return [result, tf.raw_ops.BiasAddGrad(out_backprop=inputs[2])]
    return list(result) if isinstance(result, tuple) else [result]


def _call(kind: str, inputs: list[tf.Tensor], key: OpKey) -> Any:
    definition = _definition(kind)
    inferred = {
        name
        for argument in definition.input_arg
        for name in (argument.type_attr, argument.number_attr, argument.type_list_attr)
    }
    arguments: dict[str, Any] = {}
    rest = list(inputs)
    for argument, count in _counted(definition, len(inputs)):
        if count is not None:
            arguments[argument.name], rest = rest[:count], rest[count:]
        elif rest:
            arguments[argument.name] = rest.pop(0)
    for attribute in definition.attr:
        if attribute.name not in inferred:
            text = key.attributes.get(attribute.name)
            # None stands for the attribute's default
            arguments[attribute.name] = None if text is None else _attribute(attribute.type, text)
    return op_def_library.apply_op(kind, **arguments)


def _attribute(kind: str, text: str) -> Any:
    if kind.startswith("list("):
        items = [item for item in text.strip("[]").split(",") if item]
        return [_attribute(kind[5:-1], item) for item in items]
    if kind not in _READ:
        raise ValueError(f"dltune cannot make an attribute of type {kind}")
    return _READ[kind](text)
