"""What JAX's profiler (xprof) has written of a CPU, told as dltune's plugin tells of a job.

The ops are XLA's, of the modules that `jax.jit` compiled, known by module and name: neither shapes
nor what reads what is in the file. They are handed from thread to thread, so that each has its end
where the file marks it, which may be after it has left the thread that began it. A step begins with
each run of the module that takes the most time in ops.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from dltune.base.errors import UsageError
from dltune.job import protocol
from dltune.profile.traces import chrome
from dltune.profile.traces.chrome import Event
from dltune.profile.traces.steps import Ran, Step, Told, as_messages

_MARK = b'"hlo_op"'
_NAME = re.compile(r"([A-Za-z_][\w\-]*)([\w.\-]*)")
_END = "end: "
_HOST = "/host:CPU"
# ops that only run others, which are in the file themselves
_CONTAINERS = {"while", "call", "conditional"}


class _Arguments(msgspec.Struct, frozen=True):
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


def told(events: Sequence[Event], source: str) -> Told:
    """Raises UsageError, which names `source`, where no step can be told apart."""
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
    return Told("jax", list(as_messages(_steps(ran, ends), ())), notes)


def _runs(events: Sequence[Event], source: str) -> list[_Run]:
    """The runs of modules on the host's CPUs."""
    hosts = {
        one.pid: chrome.arguments(one, _Process, source).name
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
        its = chrome.arguments(one, _Arguments, source)
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


def _steps(steps: Sequence[Sequence[_Run]], ends: Sequence[float]) -> Iterator[Step]:
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
