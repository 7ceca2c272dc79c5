"""Traces of PyTorch's profiler, as messages in the form of dltune's plugin.

A step is the span of one `ProfilerStep#N`; if nobody called the profiler's `step()`, the time
between the ends of two steps of an optimizer. Its ops are the ops that no other op has called;
autograd's own bookkeeping around them is no op. They ran in sequence in each thread, and each
waits for its predecessor: the file does not have the readers of tensors.
"""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from dltune.base.errors import UsageError
from dltune.job import protocol
from dltune.profile.traces import chrome
from dltune.profile.traces.chrome import Event
from dltune.profile.traces.steps import Ran, Step, Told, as_messages
from dltune.schemas import graph

CATEGORY = "cpu_op"
_ANNOTATION = "user_annotation"
_STEP = re.compile(r"ProfilerStep#\d+")
_OPTIMIZER = re.compile(r"Optimizer\.step#")
_LOADER = re.compile(r"enumerate\(DataLoader\)")
_MEMORY = "[memory]"
_CPU = 0  # as the file numbers devices
_ACCELERATED = ("kernel", "gpu_memcpy", "gpu_memset")  # categories of a GPU's work
# an op has its library's name before it; autograd's nodes and its engine have none, or its own
_OP = re.compile(r"(?!autograd::|profiler::)\w[\w.]*::")
# PyTorch's names of types that have other names in dltune
_DTYPES = {
    "float": "float",
    "double": "double",
    "bool": "bool",
    "int": "int32",
    "long": "int64",
    "long int": "int64",
    "short": "int16",
    "short int": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "c10::BFloat16": "bfloat16",
    "c10::Half": "half",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}
_MOST_ELEMENTS = 2**48
_LIST = "TensorList"
_NUMBER = r"(-?\d{1,18}|True|False)"
_NUMBERS = re.compile(rf"{_NUMBER}|\[{_NUMBER}(, {_NUMBER})*\]")


class _Arguments(msgspec.Struct, frozen=True):
    """Arguments of an op, and of a change of memory."""

    dims: list[Any] = msgspec.field(default_factory=list, name="Input Dims")
    types: list[str] = msgspec.field(default_factory=list, name="Input type")
    concrete: list[str] = msgspec.field(default_factory=list, name="Concrete Inputs")
    order: int = msgspec.field(default=0, name="External id")
    total: int = msgspec.field(default=0, name="Total Allocated")
    device: int = msgspec.field(default=-1, name="Device Type")


class _Op(NamedTuple):
    event: Event
    type: str
    inputs: str
    attributes: str


def told(events: Sequence[Event], source: str) -> Told:
    """Return the trace. Raises UsageError, naming `source`, if no step is found or a GPU ran."""
    if any(one.cat in _ACCELERATED for one in events):
        raise UsageError(
            f"the ops of {source} ran on a GPU", remedy="record a trace of training on a CPU"
        )
    spans = _spans(events, source)
    first = spans[0]
    mine = [one for one in events if one.pid == first.pid and one.ph in "XiI"]
    ops = _ops(mine, source)
    memory = sorted(
        (one.ts, max(known.total, 0))
        for one in mine
        if one.name == _MEMORY
        and (known := chrome.arguments(one, _Arguments, source)).device == _CPU
    )
    notes = []
    if not any(op.inputs for thread in ops.values() for op in thread):
        notes.append(
            "the trace has no shapes (record_shapes=True): ops are distinguished only by name"
        )
    if not memory:
        notes.append("the trace has no memory data (profile_memory=True)")
    # the thread that steps comes first
    threads = sorted(ops, key=lambda thread: (thread != first.tid, str(thread)))
    steps = _steps(spans, [ops[thread] for thread in threads])
    return Told("pytorch", list(as_messages(steps, memory)), tuple(notes))


def _spans(events: Sequence[Event], source: str) -> list[Event]:
    """Return the spans of the steps, in order."""
    marks = [one for one in events if one.ph == "X" and one.cat == _ANNOTATION]
    steps = sorted((one for one in marks if _STEP.fullmatch(one.name)), key=lambda one: one.ts)
    if len(steps) < 2:
        ends = sorted((one for one in marks if _OPTIMIZER.match(one.name)), key=lambda one: one.end)
        steps = [
            msgspec.structs.replace(after, ts=before.end, dur=after.end - before.end)
            for before, after in itertools.pairwise(ends)
        ]
    if len(steps) < 2:
        raise UsageError(
            f"{source} contains fewer than two steps of a profiler or an optimizer",
            remedy=(
                "call the profiler's step() after each training step, and record at least three "
                "steps"
            ),
        )
    return steps


def _ops(events: Sequence[Event], source: str) -> dict[int | str, list[_Op]]:
    """Return by thread, in order, the ops that no other op has called."""
    by_thread: dict[int | str, list[tuple[Event, _Arguments]]] = defaultdict(list)
    for one in events:
        if one.ph == "X" and (one.cat == CATEGORY or _LOADER.match(one.name)):
            by_thread[one.tid].append((one, chrome.arguments(one, _Arguments, source)))
    found: dict[int | str, list[_Op]] = {}
    for thread, ran in by_thread.items():
        # of two that began together the caller is longer, or has the smaller number
        ran.sort(key=lambda one: (one[0].ts, -one[0].dur, one[1].order))
        until = -math.inf
        own = found[thread] = []
        for one, arguments in ran:
            if one.ts < until or not (_OP.match(one.name) or _LOADER.match(one.name)):
                continue
            until = one.end
            own.append(_op(one, arguments))
    return found


def _op(event: Event, arguments: _Arguments) -> _Op:
    if _LOADER.match(event.name):
        return _Op(event, "DataLoader", "", "")
    inputs, attributes = [], []
    name = graph.aten_name(event.name)
    names = graph.ARGUMENTS.get(name, {})
    for place, kind in enumerate(arguments.types):
        dims = arguments.dims[place] if place < len(arguments.dims) else []
        text = arguments.concrete[place] if place < len(arguments.concrete) else ""
        if (dtype := _DTYPES.get(kind)) and _is_shape(dims):
            inputs.append(f"{dtype}[{','.join(map(str, dims))}]")
        elif kind == _LIST and isinstance(dims, list) and all(map(_is_shape, dims)):
            elements = sum(math.prod(shape) for shape in dims)
            attributes.append(f"tensors={len(dims)}, elements={elements}")
        # numbers with a fraction can differ in each step, and so can the position of a view
        elif _NUMBERS.fullmatch(text) and name not in graph.VIEWS:
            value = text.replace(", ", ",").lower()
            attributes.append(f"{names.get(place, f'argument_{place}')}={value}")
    told = f"{{{', '.join(attributes)}}}" if attributes else ""
    return _Op(event, event.name, ",".join(inputs), told)


def _is_shape(dims: Any) -> bool:
    """Return True for a possible tensor's shape: results from it grow in proportion to its
    sizes."""
    return (
        isinstance(dims, list)
        and all(isinstance(size, int) and size >= 0 for size in dims)
        and math.prod(dims) <= _MOST_ELEMENTS
    )


def _steps(spans: Sequence[Event], threads: Sequence[Sequence[_Op]]) -> Iterator[Step]:
    starts = [[op.event.ts for op in ops] for ops in threads]
    for span in spans:
        within = [
            ops[bisect_left(began, span.ts) : bisect_left(began, span.end)]
            for ops, began in zip(threads, starts, strict=True)
        ]
        ran = [
            Ran(thread, op.type, op.inputs, op.attributes, op.event.ts, op.event.end)
            for thread, ops in enumerate(within)
            for op in ops
        ]
        if ran:
            yield Step(ran, list(_nodes(within)), span.end)


def _nodes(threads: Sequence[Sequence[_Op]]) -> Iterator[protocol.Node]:
    seen: dict[str, int] = defaultdict(int)
    number = 0
    for ops in threads:
        for place, op in enumerate(ops):
            seen[op.type] += 1
            control = [number - 1] if place else []
            yield protocol.Node(f"{op.type}_{seen[op.type]}", op.type, [], control, False)
            number += 1
