"""Standalone runs of a profile's ops: the job, its task, and inputs that fit the op keys.

The ops run by themselves, also at other batch sizes than the measured one. `plain` replaces ops
that TensorFlow has rewritten, `with_batch` changes the batch size in a key, `shape_value` finds
inputs that hold shapes or axes, and `standalone_job` puts the job together. The job is profiled
like any other.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import math
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dltune.base import documents
from dltune.base.errors import UsageError
from dltune.base.formatting import some
from dltune.schemas import graph
from dltune.schemas.graph import SIZES, OpKey, TensorType
from dltune.schemas.profile import Op, Profile, load
from dltune.system.memory import free_bytes

# Ops that TensorFlow rewrites, and the plain ops that they replace

_FUSED = {
    "FusedConv2D": "Conv2D",
    "FusedDepthwiseConv2dNative": "DepthwiseConv2dNative",
    "FusedMatMul": "MatMul",
}
_WITH_BIAS = "WithBias"
# ops that the remapper fuses into the ops above; each takes the result of the previous op
_FOLLOWERS = ("BiasAdd", "Relu", "Relu6", "Elu", "LeakyRelu", "Tanh", "Sigmoid")


@dataclass(frozen=True)
class Plain:
    """Plain ops that an op was rewritten from.

    `then`: plain ops after the first, each on the result of the previous op. `bias_gradient`:
    a BiasAddGrad runs next to a Conv2DBackpropFilter, on the same gradient.
    """

    type: str
    then: tuple[str, ...] = ()
    bias_gradient: bool = False


def plain(op: OpKey) -> Plain:
    """Return the plain ops of an op that TensorFlow has rewritten; it will rewrite them again.

    Kernels named _MklNative... and _Mkl... come from oneDNN's layout pass, _Fused... from
    Grappler's remapper. Raises ValueError for a fusion whose parts are not known.
    """
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


# The batch dimension of an op's inputs: found in a profile, and replaced in a key

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
    """Return the batch size: the first dimension of the largest input, weighted by op time.

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
    """Return `op` for a batch of `new` examples in place of `old`.

    `channels`: the last dimensions in use in the model. A vector of `old` elements holds examples
    unless `old` is one of them too: then it can also be a bias. Integers are labels.
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
    """Return the last dimensions of all inputs of two dimensions or more."""
    return frozenset(t.shape[-1] for op in ops for t in inputs_of(op.key) if len(t.shape) > 1)


def inputs_of(key: str) -> tuple[TensorType, ...]:
    """Return the inputs in a key; none if it does not contain their shapes."""
    try:
        return graph.parse_key(key).inputs
    except ValueError:
        return ()


def _workspace(op: OpKey, old: int, new: int) -> OpKey:
    """Return `op` with oneDNN's workspace, a flat tensor with a part for each example, resized.

    oneDNN's pooling passes it to its gradient.
    """
    *tensors, last = op.inputs
    if last.dtype != "uint8" or len(last.shape) != 1 or last.elements % old:
        return op
    return op.with_inputs((*tensors, TensorType("uint8", (last.elements // old * new,))))


# Task of the standalone job: ops, their origin, and the batch size at which each runs

SCHEMA = "dltune.standalone/1"
# bytes of a job that has imported TensorFlow
BASE = 600 << 20
# ops that compute nothing, or have a meaning only in a graph
_NOTHING = ("_Arg", "_Retval", "Const", "Identity", "NoOp")


class Standalone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An op to run. `original`: its key when it was measured, with `output_bytes` and `measured`
    examples in a step; `key` and `batch`: the requested key and batch size."""

    key: str
    original: str
    output_bytes: int
    measured: int
    batch: int


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    ops: tuple[Standalone, ...]

    @property
    def onednn(self) -> bool:
        """True if the ops ran with oneDNN's kernels."""
        return any(op.key.startswith("_Mkl") for op in self.ops)

    def memory(self) -> tuple[int, str]:
        """Return about how many bytes the job needs, and the op that needs them.

        Inputs are views of one buffer, which is copied once when it is filled. Only the output
        of the running op exists.
        """
        return max(
            (
                BASE
                + 2 * sum(tensor.bytes for tensor in inputs_of(op.key))
                + op.output_bytes * op.batch // op.measured,
                op.key,
            )
            for op in self.ops
        )


class Done(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Answer of the job: by key, why an op was left out."""

    schema: str
    left: dict[str, str]


def load_task(path: Path) -> Task:
    return documents.read(path, Task, SCHEMA)


def load_done(path: Path) -> Done:
    return documents.read(path, Done, SCHEMA)


def standalone_task(profile: Profile, batches: Sequence[int]) -> Task:
    """Return all ops of the profile that dltune controls, at these batch sizes (none: as measured).

    An op that does not depend on the batch size appears once. Raises UsageError when the profile
    has no such op, or no batch dimension.
    """
    ops = [op for op in profile.ops if op.times and op.type not in _NOTHING]
    if not ops:
        raise UsageError(
            "no op of this profile can run standalone",
            remedy="profile the job again, until dltune tries thread counts",
        )
    measured = batch_of(ops)
    channels = channels_of(ops)
    found: dict[str, Standalone] = {}
    for batch in batches or (measured,):
        for op in ops:
            key = op.key if batch == measured else _at(op, measured, batch, channels)
            found.setdefault(key, Standalone(key, op.key, op.output_bytes, measured, batch))
    return Task(SCHEMA, tuple(found.values()))


def _at(op: Op, measured: int, batch: int, channels: frozenset[int]) -> str:
    try:
        return str(with_batch(graph.parse_key(op.key), measured, batch, channels=channels))
    except ValueError:
        return op.key  # the job reports why it cannot make up this op


def outcome_notes(task: Task, left: Mapping[str, str], measured: Iterable[str]) -> list[str]:
    """Return sentences: how many ops ran, which did not, and which came back under another key."""
    came = set(measured)
    wanted = {op.key for op in task.ops}
    ran = wanted & came
    sentences = [f"{len(ran)} of {len(wanted)} ops ran standalone with the requested keys"]
    for reason, count in Counter(left.values()).most_common():
        kinds = sorted({key.split("(")[0] for key, why in left.items() if why == reason})
        ops = "1 op was" if count == 1 else f"{count} ops were"
        sentences.append(f"{ops} skipped: {reason} ({some(kinds, 4)})")
    if other := sorted(wanted - came - left.keys()):
        sentences.append(
            f"TensorFlow rewrote {len(other)} of these ops differently, so their keys changed: "
            f"{some(other, 4)}"
        )
    return sentences


# Inputs whose values are shapes or axes, derived from an op's key and the bytes of its output

Value = tuple[int, ...] | tuple[tuple[int, ...], ...] | int


def shape_value(kind: str, argument: str, op: OpKey, original: OpKey, wanted: Standalone) -> Value:
    """Return the value that `op` (of plain type `kind`) gets as its input `argument`.

    A key shows that Conv2DBackpropFilter had an int32[4], but not its values. The size of the
    output and the other inputs determine them. Where several answers fit (1x7 and 7x1 filters),
    they do the same work and the first is taken. Where none fits, or where the work depends on the
    answer, the op is left out.

    `op` and `original` are the two keys of `wanted`, whose output's bytes are those of `original`.
    Raises ValueError when they do not determine the value.
    """
    maker = _MAKERS.get((kind, argument))
    is_nhwc = op.attributes.get("data_format", "NHWC") == "NHWC"
    made = maker(op, original, wanted) if maker and is_nhwc else None
    if made is None:
        raise ValueError(f"input {argument} is a value that the op's key does not contain")
    return made


def _input_sizes(op: OpKey, original: OpKey, wanted: Standalone) -> Value | None:
    """Return the image of a convolution's gradient: [examples, height, width, channels]."""
    filters = original.inputs[1].shape
    return _image(op, original, wanted, 2, filters[2], filters[:2])


def _filter_sizes(op: OpKey, original: OpKey, wanted: Standalone) -> Value | None:
    """Return the filter's shape: [height, width, channels in, channels out]."""
    image, gradient = original.inputs[0], original.inputs[2]
    before, after = image.shape[3], gradient.shape[3]
    bias = after if op.type.endswith("WithBias") else 0
    elements = _quotient(wanted.output_bytes, SIZES[image.dtype])
    depthwise = "Depthwise" in op.type
    area = _quotient(elements - bias, after if depthwise else before * after)
    for size in _rectangles(area):
        if _out(op, image.shape[1:3], size) == gradient.shape[1:3]:
            return (*size, before, after // before if depthwise else after)
    return None


def _pooled_sizes(op: OpKey, original: OpKey, wanted: Standalone) -> Value | None:
    """Return the image's shape for an average pooling's gradient."""
    return _image(op, original, wanted, 1, original.inputs[1].shape[3], op.integers("ksize")[1:3])


def _axes(_op: OpKey, original: OpKey, wanted: Standalone) -> Value | None:
    """Return the axes of a reduction."""
    tensor, axes = original.inputs
    reduced = _quotient(tensor.bytes, wanted.output_bytes)
    count = axes.elements
    for found in itertools.combinations(range(len(tensor.shape)), count):
        if reduced and math.prod(tensor.shape[axis] for axis in found) == reduced:
            return found if axes.shape else found[0]
    return None


def _multiples(_: OpKey, original: OpKey, wanted: Standalone) -> Value | None:
    """Return how often Tile repeats each dimension. It repeats dimensions of one element, the
    examples first."""
    shape = original.inputs[0].shape
    times = _quotient(wanted.output_bytes, original.inputs[0].bytes)
    found = [1] * len(shape)
    free = [axis for axis, size in enumerate(shape) if size == 1]
    if free and free[0] == 0 and times and times % wanted.measured == 0:
        found[0] = wanted.batch
        times //= wanted.measured
        free = free[1:]
    side = math.isqrt(times)
    if times == 1:
        return tuple(found)
    if len(free) == 1:
        found[free[0]] = times
    elif len(free) >= 2 and side * side == times:
        found[free[0]] = found[free[1]] = side
    else:
        return None
    return tuple(found)


def _concat_axis(op: OpKey, _original: OpKey, _: Standalone) -> Value:
    """Return the axis along which the tensors differ, the last if they do not differ."""
    shapes = [tensor.shape for tensor in op.inputs[:-1]]
    differing = [axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if len({*sizes}) > 1]
    return differing[0] if differing else len(shapes[0]) - 1


def _paddings(_op: OpKey, original: OpKey, wanted: Standalone) -> Value | None:
    """Return the same border for each side of an image's height and width."""
    shape = original.inputs[0].shape
    if len(shape) != 4:
        return None
    area = _quotient(wanted.output_bytes, SIZES[original.inputs[0].dtype] * shape[0] * shape[3])
    for border in range(max(shape[1:3])):
        if (shape[1] + 2 * border) * (shape[2] + 2 * border) == area:
            return ((0, 0), (border, border), (border, border), (0, 0))
    return None


_MAKERS: Mapping[tuple[str, str], Callable[[OpKey, OpKey, Standalone], Value | None]] = {
    ("Conv2DBackpropInput", "input_sizes"): _input_sizes,
    ("DepthwiseConv2dNativeBackpropInput", "input_sizes"): _input_sizes,
    ("Conv2DBackpropFilter", "filter_sizes"): _filter_sizes,
    ("DepthwiseConv2dNativeBackpropFilter", "filter_sizes"): _filter_sizes,
    ("AvgPoolGrad", "orig_input_shape"): _pooled_sizes,
    ("ConcatV2", "axis"): _concat_axis,
    ("Pad", "paddings"): _paddings,
    ("Tile", "multiples"): _multiples,
    **{(kind, "reduction_indices"): _axes for kind in ("Sum", "Mean", "Max", "Min", "Prod")},
}


def _image(
    op: OpKey,
    original: OpKey,
    wanted: Standalone,
    place: int,
    channels: int,
    window: tuple[int, ...],
) -> Value | None:
    """Return the shape of the image on which `window` yields the gradient, the input at `place`."""
    gradient = original.inputs[place]
    area = _quotient(wanted.output_bytes, SIZES[gradient.dtype] * gradient.shape[0] * channels)
    for size in _rectangles(area):
        if _out(op, size, window) == gradient.shape[1:3]:
            return (op.inputs[place].shape[0], *size, channels)
    return None


def _quotient(a: int, b: int) -> int:
    """Return a / b, or 0 if that is not a whole number."""
    return a // b if b > 0 and a % b == 0 else 0


def _rectangles(area: int) -> Iterator[tuple[int, int]]:
    """Yield heights and widths with this area, from the squarest to the flattest."""
    pairs = [(a, area // a) for a in range(1, math.isqrt(area) + 1) if area % a == 0]
    for a, b in reversed(pairs):
        yield a, b
        if a != b:
            yield b, a


def _out(op: OpKey, image: tuple[int, ...], window: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return height and width of the output of a window that moves over an image."""
    strides = op.integers("strides")[1:3]
    dilations = op.integers("dilations")[1:3] or (1, 1)
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(window, dilations, strict=True)]
    padding = op.attributes.get("padding")
    if padding == "SAME":
        return tuple(-(-size // step) for size, step in zip(image, strides, strict=True))
    if padding == "VALID":
        sizes = zip(image, reach, strides, strict=True)
        return tuple(-(-(size - over + 1) // step) for size, over, step in sizes)
    return None


# The job


@dataclass(frozen=True)
class StandaloneJob:
    """Job that runs a profile's ops standalone, to be profiled like any other."""

    source: Path
    task: Task
    command: tuple[str, ...]
    done: Path

    def annotated(self, profile: Profile) -> Profile:
        """Return `profile` with notes on the ops that ran and the ops that were left out."""
        left = load_done(self.done).left if self.done.exists() else {}
        notes = outcome_notes(self.task, left, (op.key for op in profile.ops if op.times))
        first = f"the ops of {self.source} ran standalone, one at a time, outside the job"
        return msgspec.structs.replace(profile, notes=(*profile.notes, first, *notes))


@contextlib.contextmanager
def standalone_job(source: Path, batches: Sequence[int]) -> Iterator[StandaloneJob]:
    """Yield a job of the ops of the profile at `source`, at these batch sizes (none: as measured).

    Raises UsageError when the profile has no ops to run, when the largest does not fit into the
    free memory, or when TensorFlow is missing here.
    """
    task = standalone_task(load(source), batches)
    if importlib.util.find_spec("tensorflow") is None:
        raise UsageError(
            "running ops standalone needs TensorFlow in dltune's Python environment",
            remedy="pip install 'dltune[tensorflow]'",
        )
    require_memory(task, free_bytes()[0])
    with tempfile.TemporaryDirectory(prefix="dltune-") as folder:
        wanted, done = Path(folder) / "task.json", Path(folder) / "done.json"
        wanted.write_bytes(msgspec.json.encode(task))
        command = (
            sys.executable,
            "-m",
            "dltune.frameworks.tensorflow.standalone",
            str(wanted),
            str(done),
        )
        yield StandaloneJob(source, task, command, done)


def require_memory(task: Task, available: int) -> None:
    """Raise UsageError when the largest op needs more than `available` bytes."""
    needed, key = task.memory()
    if needed > available:
        raise UsageError(
            f"{key} needs about {needed / 2**30:.1f} GiB to run standalone, but only "
            f"{available / 2**30:.1f} GiB are free",
            remedy="use smaller batch sizes (--batch)",
        )
