"""The profile document: what was measured, and nothing decided.

Times are seconds, sizes are bytes. An *op* is a key (op type, input dtypes and shapes, the
attributes that change the work); a *node* is one place in a graph that runs an op.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from dltune.documents import files
from dltune.documents import machine as machine_document
from dltune.documents.machine import Machine
from dltune.documents.sections import settings as plan_settings
from dltune.documents.sections.settings import SettingsPlan

SCHEMA = "dltune.profile/2"

Placement = Literal["spread", "shared"]
PartName = Literal["ops", "executor", "input", "communication", "python"]

CLOCKS = ("cpu-clock", "task-clock")  # events that are seconds


class Count(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A performance counter over the runs of an op at one case.

    `value`: the mean of a run, over the op's executor thread and workers, in events (for clocks:
    seconds). `spread` as in `OpTime`. `running`: the least share of a run's time in which the
    kernel counted; below 1 the value was scaled up by it.
    """

    event: str
    value: float
    spread: float
    samples: int
    running: float = 1.0


class OpTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An op's time at one thread count and placement, ops serialised.

    `spread` is half the interquartile range of the samples divided by their median.
    """

    threads: int
    placement: Placement
    samples: int
    min: float
    median: float
    spread: float
    counts: tuple[Count, ...] = ()


class Op(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One op key.

    `count`: how often a round of the steps runs it. `own`: its median time under the job's own
    settings, not serialised. `times` is empty for an op that dltune does not control: an
    asynchronous kernel, or one that may wait for another.
    """

    key: str
    type: str
    inputs: tuple[str, ...]
    count: int
    output_bytes: int
    own: float | None
    times: tuple[OpTime, ...]


class Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a node gave out at one of its slots. `alias`: the node's input whose memory it is; None
    where it is its own."""

    dtype: str
    bytes: int
    alias: int | None = None


class Partner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a send, a receive or a collective meets its like.

    `rendezvous`: what it is called there. `sender` and `receiver`: devices, empty for a collective
    of `members`.
    """

    rendezvous: str
    sender: str = ""
    receiver: str = ""
    members: int = 0


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One node of an executed graph.

    `op` indexes `Profile.ops` (None: it never ran a kernel, such as a constant). `inputs`: by its
    input slots, the nodes whose tensors it reads, and `slots` their output slots (empty: all 0).
    `control`: nodes that it waits for besides. `outputs`: its tensors by slot (empty: not told).
    `repeats`: runs per execution (more than one in a loop, 0 when the node did not run).
    `start` and `end` are seconds since the first op of one sampled execution under the job's own
    settings, `live` the bytes that the allocator held at its end.
    """

    name: str
    type: str
    op: int | None
    inputs: tuple[int, ...]
    control: tuple[int, ...]
    output_bytes: int
    repeats: float
    start: float | None = None
    end: float | None = None
    slots: tuple[int, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    partner: Partner | None = None
    live: int | None = None


class Samples(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Repeated measurements of one quantity, in seconds. `spread` as in `OpTime`."""

    samples: int
    min: float
    median: float
    spread: float


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a step's wall time goes to, in seconds of one execution; all parts make up the wall.

    `ops`: some op runs. `executor`: between an execution's first op and its last, none does.
    `input` and `communication`: nothing runs but ops that wait for data, or for another process.
    `python`: between executions, none of these.
    """

    name: PartName
    seconds: float


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the job's Python that its main thread was seen at between executions.

    `share` of such looks.
    """

    where: str
    share: float


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A graph whose executions repeat: a training step, or one of several (a GAN's two).

    `device` with its task, as the framework names it (empty: not told).
    `wall`: from the start of one execution to the start of the next, under the job's own settings.
    `span`: from an execution's first op to its last, likewise. `share` is its part of all op time.
    """

    signature: str
    name: str
    executions: int
    share: float
    wall: Samples
    span: Samples
    nodes: tuple[Node, ...]
    parts: tuple[Part, ...] = ()
    lines: tuple[Line, ...] = ()
    device: str = ""


class Framework(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ran the job's ops, such as "tensorflow"; `git`: its build, `python`: the version of the
    interpreter that it ran in."""

    name: str
    version: str
    git: str
    python: str


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The job's own thread settings as TensorFlow resolved them."""

    intra: int
    inter: int


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that TensorFlow's CPU allocator held: between steps, and at most within one."""

    live: int
    peak: int


class Ratio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time with something over time without it: the median of pairs and its 95 % interval."""

    pairs: int
    low: float
    median: float
    high: float


class Total(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One event over one interval of the job: in its ops, elsewhere in the threads that run ops,
    in all other threads, and in the process as the kernel accounts for it."""

    event: str
    ops: float
    gaps: float
    others: float
    process: float


class Counters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How counters were read. `asked`: a preset or the user's list; `why`: a sentence on what
    could be counted here. `groups`: events of one group were counted together, groups in turns.
    `overhead`: the step with ops recorded and counted, over the plain step. `fault_seconds`: what
    the first touch of a page cost on this machine before the job started."""

    asked: str
    why: str
    groups: tuple[tuple[str, ...], ...]
    totals: tuple[Total, ...] = ()
    overhead: Ratio | None = None
    fault_seconds: float | None = None


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """`partial` is the reason why the profile is incomplete, None when it is whole. `under`: the
    settings around the ops that the job ran under, threads and CPUs left out."""

    schema: str
    created: str
    dltune: str
    partial: str | None
    command: tuple[str, ...]
    machine: Machine
    framework: Framework
    settings: Settings
    interval: int
    steps: tuple[Step, ...]
    ops: tuple[Op, ...]
    memory: Memory | None
    notes: tuple[str, ...]
    counters: Counters | None = None
    under: SettingsPlan | None = None


def is_clock(event: str) -> bool:
    """Whether what is counted under this name, with or without a modifier, is seconds."""
    return event.partition(":")[0] in CLOCKS


def load(path: Path) -> Profile:
    """The profile in a file. Raises UsageError, which lists every fault."""
    return files.read(path, Profile, SCHEMA, check, {1: _second})


def _second(first: dict[str, Any]) -> dict[str, Any]:
    """A profile of the first schema, which was TensorFlow's alone."""
    build = first.pop("tensorflow", None)
    return (
        {**first, "framework": {"name": "tensorflow", **build}}
        if isinstance(build, dict)
        else first
    )


def check(profile: Profile) -> list[str]:
    """All that cannot be true of a profile, one sentence each, the field's path first."""
    faults = [f"machine.{fault}" for fault in machine_document.check(profile.machine)]
    for field in ("intra", "inter"):
        if getattr(profile.settings, field) < 1:
            faults.append(f"settings.{field}: {getattr(profile.settings, field)} is below 1")
    if profile.interval < 1:
        faults.append(f"interval: {profile.interval} is below 1")
    faults += _repeated("ops", "key", (op.key for op in profile.ops))
    for index, op in enumerate(profile.ops):
        faults += _op_faults(f"ops[{index}] ({op.key})", op)
    faults += _repeated("steps", "signature", (step.signature for step in profile.steps))
    for index, step in enumerate(profile.steps):
        faults += _step_faults(f"steps[{index}]", step, len(profile.ops))
    if profile.memory is not None and min(profile.memory.live, profile.memory.peak) < 0:
        faults.append("memory: bytes below 0")
    if profile.under is not None:
        faults += [f"under.{fault}" for fault in plan_settings.faults(profile.under)]
    return faults


def _op_faults(here: str, op: Op) -> Iterator[str]:
    if op.count < 0:
        yield f"{here}.count: {op.count} is negative"
    if op.output_bytes < 0:
        yield f"{here}.output_bytes: {op.output_bytes} is negative"
    if op.own is not None and not _is_time(op.own):
        yield f"{here}.own: {op.own} is not a time"
    cases = (f"{time.threads} threads {time.placement}" for time in op.times)
    yield from _repeated(f"{here}.times", "case", cases)
    for index, time in enumerate(op.times):
        at = f"{here}.times[{index}]"
        if time.threads < 1:
            yield f"{at}.threads: {time.threads} is below 1"
        yield from _measured(at, time)
        yield from _repeated(f"{at}.counts", "event", (count.event for count in time.counts))
        for count in time.counts:
            if not _is_time(count.value) or not _is_time(count.spread):
                yield f"{at}.counts ({count.event}): {count.value} is negative or not finite"
            if not 0 < count.running <= 1:
                yield f"{at}.counts ({count.event}).running: {count.running} is not in (0, 1]"


def _step_faults(here: str, step: Step, ops: int) -> Iterator[str]:
    if step.executions < 0:
        yield f"{here}.executions: {step.executions} is negative"
    if not 0 <= step.share <= 1 + 1e-9:
        yield f"{here}.share: {step.share} is not between 0 and 1"
    yield from _measured(f"{here}.wall", step.wall)
    yield from _measured(f"{here}.span", step.span)
    for part in step.parts:
        if not _is_time(part.seconds):
            yield f"{here}.parts ({part.name}): {part.seconds} is not a time"
    for index, node in enumerate(step.nodes):
        at = f"{here}.nodes[{index}] ({node.name})"
        if node.op is not None and not 0 <= node.op < ops:
            yield f"{at}.op: there is no ops[{node.op}]"
        for field in ("inputs", "control"):
            for other in getattr(node, field):
                if not 0 <= other < len(step.nodes):
                    yield f"{at}.{field}: there is no nodes[{other}]"
        if node.slots and len(node.slots) != len(node.inputs):
            yield f"{at}.slots: {len(node.slots)} for {len(node.inputs)} inputs"
        for other, slot in zip(node.inputs, node.slots, strict=False):
            given = step.nodes[other].outputs if 0 <= other < len(step.nodes) else ()
            if slot < 0 or (given and slot >= len(given)):
                yield f"{at}.slots: nodes[{other}] has no output {slot}"
        for slot, tensor in enumerate(node.outputs):
            if tensor.bytes < 0:
                yield f"{at}.outputs[{slot}].bytes: {tensor.bytes} is negative"
            if tensor.alias is not None and not 0 <= tensor.alias < len(node.inputs):
                yield f"{at}.outputs[{slot}].alias: it has no input {tensor.alias}"
        if not _is_time(node.repeats):
            yield f"{at}.repeats: {node.repeats} is negative or not finite"
        if node.output_bytes < 0:
            yield f"{at}.output_bytes: {node.output_bytes} is negative"
        if node.start is not None and node.end is not None and node.start > node.end:
            yield f"{at}: it ends at {node.end}, before its start at {node.start}"


def _measured(here: str, found: OpTime | Samples) -> Iterator[str]:
    if found.samples < 0:
        yield f"{here}.samples: {found.samples} is negative"
    for field in ("min", "median", "spread"):
        if not _is_time(getattr(found, field)):
            yield f"{here}.{field}: {getattr(found, field)} is negative or not finite"
    if found.min > found.median:
        yield f"{here}: the minimum {found.min} is above the median {found.median}"


def _is_time(value: float) -> bool:
    return math.isfinite(value) and value >= 0


def _repeated(here: str, what: str, values: Iterable[str]) -> list[str]:
    counts = collections.Counter(values)
    return [f"{here}: the {what} {v!r} is there {n} times" for v, n in counts.items() if n > 1]
