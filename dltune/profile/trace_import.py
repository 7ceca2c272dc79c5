"""Import of traces that other profilers have written: PyTorch's profiler and JAX's (xprof).

`imported` turns a trace into a profile. The profile shows what ran when under the job's own
settings, and nothing at other settings.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dltune.base.errors import UsageError
from dltune.job import protocol
from dltune.job.record import Record, step_graphs
from dltune.profile import trace_events
from dltune.profile.assembly import Own, assemble
from dltune.profile.climb import Climb
from dltune.profile.processes import LEAST_SHARE
from dltune.profile.trace_events import Event, Ran, Step, Told, as_messages
from dltune.schemas import graph
from dltune.schemas.machine import Machine
from dltune.schemas.profile import Profile

# Traces of PyTorch's profiler (kineto)

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


def kineto_messages(events: Sequence[Event], source: str) -> Told:
    """Return a trace of PyTorch's profiler, as messages in the form of dltune's plugin.

    A step is the span of one `ProfilerStep#N`; if nobody called the profiler's `step()`, the time
    between the ends of two steps of an optimizer. The ops of a step are the ops that no other op
    has called; autograd's own bookkeeping around them is no op. They ran in sequence in each
    thread, and each waits for its predecessor: the file does not have the readers of tensors.

    Raises UsageError, naming `source`, if no step is found or a GPU ran.
    """
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
        and (known := trace_events.arguments(one, _Arguments, source)).device == _CPU
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
            by_thread[one.tid].append((one, trace_events.arguments(one, _Arguments, source)))
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


# Traces of JAX's profiler (xprof)

_MARK = b'"hlo_op"'
_NAME = re.compile(r"([A-Za-z_][\w\-]*)([\w.\-]*)")
_END = "end: "
_HOST = "/host:CPU"
# ops that only run others, which are in the file themselves
_CONTAINERS = {"while", "call", "conditional"}


class _XprofArguments(msgspec.Struct, frozen=True):
    op: str = msgspec.field(default="", name="hlo_op")
    module: str = msgspec.field(default="", name="hlo_module")
    run: str | int = msgspec.field(default="", name="run_id")


class _Process(msgspec.Struct, frozen=True):
    name: str = ""


@dataclass
class _Run:
    """One of a module, with what ran in it."""

    module: str
    ops: list[tuple[str, Ran]] = field(default_factory=list)

    @property
    def start(self) -> float:
        return min(op.start for _, op in self.ops)


def is_of_jax(event: Event) -> bool:
    return _MARK in bytes(event.args)


def xprof_messages(events: Sequence[Event], source: str) -> Told:
    """Return a CPU's trace by JAX's profiler (xprof), as messages in the form of dltune's plugin.

    The ops are XLA's, of the modules that `jax.jit` compiled, known by module and name: the file
    has neither shapes nor the readers of tensors. Ops are handed from thread to thread, so each
    ends where the file marks its end, which can be after it has left the thread that began it. A
    step begins with each run of the module that takes the most time in ops.

    Raises UsageError, which names `source`, where no step can be distinguished.
    """
    runs = sorted(_runs(events, source), key=lambda run: run.start)
    spent: dict[str, float] = defaultdict(float)
    for run in runs:
        spent[run.module] += sum(op.end - op.start for _, op in run.ops)
    main = max(spent, key=spent.__getitem__, default="")
    begun = [number for number, run in enumerate(runs) if run.module == main]
    if len(begun) < 3:
        raise UsageError(
            f"{source} contains fewer than two steps: no XLA module ran three times",
            remedy="record more steps",
        )
    ran = [runs[first:after] for first, after in itertools.pairwise(begun)]
    ends = [runs[after].start for after in begun[1:]]
    notes = (
        "the trace has no shapes: ops are distinguished only by name",
        "the trace has no data flow: dltune cannot see which op waits for another",
        "the trace has no memory data",
    )
    return Told("jax", list(as_messages(_xprof_steps(ran, ends), ())), notes)


def _runs(events: Sequence[Event], source: str) -> list[_Run]:
    """The runs of modules on the host's CPUs."""
    hosts = {
        one.pid: trace_events.arguments(one, _Process, source).name
        for one in events
        if one.ph == "M" and one.name == "process_name"
    }
    ops = [one for one in events if one.ph == "X" and is_of_jax(one)]
    mine = [one for one in ops if hosts.get(one.pid, _HOST) == _HOST]
    if ops and not mine:
        where = ", ".join(sorted({hosts[one.pid] for one in ops}))
        raise UsageError(
            f"the ops of {source} ran on {where}", remedy="record a trace of training on a CPU"
        )
    threads: dict[int | str, int] = {}
    found: dict[tuple[int | str, str, str | int], _Run] = {}
    ended = _ends(events)
    begun = _starts(mine)
    for one in sorted(mine, key=lambda one: one.ts):
        its = trace_events.arguments(one, _XprofArguments, source)
        name = _NAME.fullmatch(its.op)
        if name is None or name[1] in _CONTAINERS:
            continue
        thread = threads.setdefault(one.tid, len(threads))
        op = Ran(
            thread,
            name[1].replace("-", "_"),
            "",
            f"{{hlo_module={its.module}, hlo_op={its.op}}}",
            one.ts,
            max(one.end, _marked(one, ended, begun)),
        )
        run = found.setdefault((one.pid, its.module, its.run), _Run(its.module))
        run.ops.append((f"{its.module}/{its.op}", op))
    return list(found.values())


def _starts(events: Sequence[Event]) -> dict[tuple[int | str, str], list[float]]:
    """When ops of a name began, by process and name, in order."""
    found: dict[tuple[int | str, str], list[float]] = defaultdict(list)
    for one in sorted(events, key=lambda one: one.ts):
        found[one.pid, one.name].append(one.ts)
    return found


def _ends(events: Sequence[Event]) -> dict[tuple[int | str, str], list[float]]:
    """When the file marks ops of a name as ended."""
    marks = [one for one in events if one.ph == "X" and one.name.startswith(_END)]
    return {(pid, name[len(_END) :]): when for (pid, name), when in _starts(marks).items()}


def _marked(
    op: Event,
    ended: dict[tuple[int | str, str], list[float]],
    begun: dict[tuple[int | str, str], list[float]],
) -> float:
    """When it ended by the first mark after its start, if that is before the next of its name
    begins; else its start."""
    marks, starts = ended.get((op.pid, op.name), []), begun[op.pid, op.name]
    after = bisect_left(marks, op.ts)
    following = bisect_left(starts, op.ts) + 1
    if after == len(marks) or (following < len(starts) and marks[after] >= starts[following]):
        return op.ts
    return marks[after]


def _xprof_steps(steps: Sequence[Sequence[_Run]], ends: Sequence[float]) -> Iterator[Step]:
    """Ops stand in the order in which a step of the same ops began them first."""
    orders: dict[frozenset[tuple[str, int]], dict[tuple[str, int], int]] = {}
    for runs, end in zip(steps, ends, strict=True):
        known: dict[tuple[str, int], Ran] = {}
        times: dict[str, int] = defaultdict(int)
        for name, op in sorted((op for run in runs for op in run.ops), key=lambda op: op[1].start):
            times[name] += 1
            known[name, times[name]] = op
        order = orders.setdefault(frozenset(known), {one: place for place, one in enumerate(known)})
        placed = sorted(known, key=order.__getitem__)
        nodes = [
            protocol.Node(
                name if time == 1 else f"{name}_{time}", known[name, time].type, [], [], False
            )
            for name, time in placed
        ]
        yield Step([known[one] for one in placed], nodes, end)


# The profile

# the first step of a trace pays for the profiler's own start
WARM_UP = 1
PARTIAL = "it comes from a trace: no op was measured at another thread count"


def imported(path: Path, machine: Machine) -> Profile:
    """The profile of a trace that PyTorch's profiler or JAX's has written. `machine`: this one, for
    a trace does not tell its own. Raises UsageError where no step of it repeats."""
    events = trace_events.load(path)
    if any(event.cat == CATEGORY for event in events):
        told = kineto_messages(events, str(path))
    elif any(map(is_of_jax, events)):
        told = xprof_messages(events, str(path))
    else:
        raise UsageError(
            f"{path} contains no ops of PyTorch or JAX",
            remedy="record it with torch.profiler, ProfilerActivity.CPU, and export_chrome_trace, "
            "or with jax.profiler.trace",
        )
    record = Record(protocol.Plugin(0, "", "", "", framework=told.framework))
    for message in told.messages:
        record.add(message)
    targets = step_graphs(record, LEAST_SHARE)
    _number(record, targets)
    if not targets:
        steps = sum(record.runs.values())
        raise UsageError(
            f"{path} has {steps} steps that all differ in their ops",
            remedy="record more steps, without validation between them",
        )
    return assemble(
        record,
        Own.of(record, targets, WARM_UP),
        Climb([(1, "spread")]),
        None,
        None,
        machine=machine,
        command=("a trace:", shlex.quote(str(path))),
        interval=1,
        partial=PARTIAL,
        notes=(
            "the machine and thread counts shown are those of this machine: a trace does not "
            "contain its own",
            *told.notes,
        ),
    )


def _number(record: Record, targets: Collection[int]) -> None:
    """Executions of the steps, so that a number is missed where other ones lie between."""
    others = sorted(
        execution.start
        for number, every in record.executions.items()
        if number not in targets
        for execution in every
    )
    for step in targets:
        record.executions[step] = [
            msgspec.structs.replace(one, number=at + bisect_right(others, one.start))
            for at, one in enumerate(record.executions[step])
        ]
