"""The profile document: what was measured, and nothing decided.

Times are seconds, sizes are bytes. An *op* is a key (op type, input dtypes and shapes, the
attributes that change the work); a *node* is one place in a graph that runs an op.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from dltune.documents import calls as calls_document
from dltune.documents import compiled as compiled_document
from dltune.documents import files
from dltune.documents import machine as machine_document
from dltune.documents import roofs as roofs_document
from dltune.documents.calls import Calls
from dltune.documents.compiled import Compiled
from dltune.documents.faults import (
    AMOUNT,
    POSITIVE,
    SHARE,
    Bound,
    at_least,
    at_most,
    each,
    index,
    repeated,
)
from dltune.documents.machine import Machine
from dltune.documents.roofs import Roofs
from dltune.documents.sections import settings as plan_settings
from dltune.documents.sections.settings import SettingsPlan

SCHEMA = "dltune.profile/2"

Placement = Literal["spread", "shared"]
PartName = Literal["ops", "executor", "input", "communication", "python"]

# what TensorFlow calls tasks that hold parameters
SERVERS = "/job:ps"
# and the job of a task that is alone
LOCAL = "/job:localhost"
# a node of PyTorch's by which ranks sum up gradients
ALLREDUCE = "c10d::allreduce_"
# and what DDP does with such a sum that it has waited for
_CAME = "torch.distributed.ddp.reducer::"
# frameworks by what documents call them
TITLES = {"tensorflow": "TensorFlow", "pytorch": "PyTorch", "jax": "JAX"}
CLOCKS = ("cpu-clock", "task-clock")  # events that are seconds
_RUNNING = Bound("above 0 and at most 1", lambda share: 0 < share <= 1)


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
    of `members`. `answer`: of a receive from another task, that this sends it only when something
    has come to it, as far as its part of the step was told.
    """

    rendezvous: str
    sender: str = ""
    receiver: str = ""
    members: int = 0
    answer: bool = False

    @property
    def tasks(self) -> tuple[str, str] | None:
        """Sender's and receiver's; None for what stays in one task."""
        return tasks(self.sender, self.receiver)

    @property
    def tensor(self) -> str:
        return tensor(self.rendezvous)


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One node of an executed graph.

    `op` indexes `Profile.ops` (None: it never ran a kernel, such as a constant). `inputs`: by its
    input slots, the nodes whose tensors it reads, and `slots` their output slots (empty: all 0).
    `control`: nodes that it waits for besides. `outputs`: its tensors by slot (empty: not told).
    `repeats`: runs per execution (more than one in a loop, 0 when the node did not run).
    `start` and `end` are seconds since the first op of one sampled execution under the job's own
    settings, `live` the bytes that the allocator held at its end, `scratch` those that it took and
    gave back in between. `stateful`: it keeps something from one run to the next, or changes what
    it reads.
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
    scratch: int | None = None
    stateful: bool = False

    @property
    def seconds(self) -> float:
        """Of the sampled execution; 0 where it did not run in that."""
        return 0.0 if self.start is None or self.end is None else self.end - self.start

    @property
    def received(self) -> tuple[str, str] | None:
        """The tasks of what it receives, sender's and receiver's; None where that is nothing from
        another task."""
        return self.partner.tasks if self.type == "_Recv" and self.partner else None


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


class Tried(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All ops of an execution together that dltune controls, where each of them ran so."""

    threads: int
    placement: Placement
    ops: Samples


class Collective(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What this process and others sum up in each execution, when the node at `node` asks for it.

    `took`: from its begin to its end, under the job's own settings; of those that go on beside one
    another, its part by bytes.
    """

    node: int
    bytes: int
    took: Samples


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
    tried: tuple[Tried, ...] = ()
    collectives: tuple[Collective, ...] = ()


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How tensors came from one task to another in the steps of the measured one, by the
    framework's own transport: after `delay` seconds of a step one after the other, each in `each`
    seconds and its bytes over `bandwidth`, in bytes a second.

    `bandwidth` is None when arrivals do not follow the bytes, as when both tasks are on one host.
    `transfers`: so many were seen. `fit`: the part of their times' variance that this explains
    (R²).
    """

    sender: str
    receiver: str
    delay: float
    each: float
    bandwidth: float | None
    transfers: int
    fit: float


class Framework(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ran the job's ops, such as "tensorflow"; `git`: its build, `python`: the version of the
    interpreter that it ran in. `lacks`: instructions that the machine has and that it was compiled
    without, as it tells itself ("AVX2", "FMA"); None: not told."""

    name: str
    version: str
    git: str
    python: str
    lacks: tuple[str, ...] | None = None

    @property
    def release(self) -> tuple[int, ...]:
        """As in (2, 21); empty where the version has no numbers."""
        return tuple(map(int, re.findall(r"\d+", self.version)[:2]))

    @property
    def title(self) -> str:
        """As in "TensorFlow 2.21.0"."""
        return f"{TITLES.get(self.name, self.name)} {self.version}".strip()


def tensorflow_alone(first: dict[str, Any]) -> dict[str, Any]:
    """A document of the first schema, which had TensorFlow's version, or its build, and nothing
    else's, with its framework."""
    fields = dict(first)
    build = fields.pop("tensorflow", None)
    if isinstance(build, str):
        build = {"version": build, "git": "", "python": ""}
    if not isinstance(build, dict):
        return first
    return {**fields, "framework": {"name": "tensorflow", **build}}


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The job's own thread settings as its framework resolved them."""

    intra: int
    inter: int


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes that the framework's CPU allocator held: between steps, and at most within one."""

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
    `overhead`: the step with ops recorded, not counted, over the plain step. `fault_seconds`: what
    the first touch of a page cost on this machine before the job started."""

    asked: str
    why: str
    groups: tuple[tuple[str, ...], ...]
    totals: tuple[Total, ...] = ()
    overhead: Ratio | None = None
    fault_seconds: float | None = None


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """`partial` is the reason why the profile is incomplete, None when it is whole. `under`: the
    settings around the ops that the job ran under, threads and CPUs left out.

    Where the job has several tasks, `steps` are those of one, the measured. `peers`: those of the
    others that exchange tensors with it, as far as they ran under the same dltune; their ops were
    not measured on their own. `links`: by which the measured task's tensors came.

    `roofs`: what the machine itself reaches at most; None: not measured. `calls`: a step of
    PyTorch's as its memory is planned, `compiled`: that of a script that compiles it; None: not
    told.
    """

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
    peers: tuple[Step, ...] = ()
    links: tuple[Link, ...] = ()
    roofs: Roofs | None = None
    calls: Calls | None = None
    compiled: Compiled | None = None


def task(device: str) -> str:
    """The task of a device, as "/job:ps/task:0"; empty where the device names none."""
    named = re.match(r"(/job:[^/]+)(?:/replica:\d+)?(?:/task:(\d+))?(?=/|$)", device)
    return f"{named[1]}/task:{named[2] or 0}" if named else ""


def job(task: str) -> str:
    """The part of the cluster that a task belongs to, as "/job:ps"."""
    return task.partition("/task:")[0]


def tasks(sender: str, receiver: str) -> tuple[str, str] | None:
    """Of two devices; None when they are of one task, or not told."""
    both = task(sender), task(receiver)
    return both if all(both) and both[0] != both[1] else None


def tensor(rendezvous: str) -> str:
    """The tensor's name there, which it has in every graph, unlike its edge's number."""
    return re.sub(r"^edge_\d+_(?=.)", "", rendezvous)


def is_awaited(before: str, after: str) -> bool:
    """Whether what several ranks send is waited for between two nodes of these types."""
    return before.startswith("c10d::") or after.startswith(_CAME)


def is_clock(event: str) -> bool:
    """Whether what is counted under this name, with or without a modifier, is seconds."""
    return event.partition(":")[0] in CLOCKS


def check(profile: Profile) -> list[str]:
    """All that cannot be true of a profile, one sentence each, the field's path first."""
    faults = [f"machine.{fault}" for fault in machine_document.check(profile.machine)]
    faults += at_least(1).of("settings", profile.settings, "intra", "inter")
    faults += at_least(1).of("", profile, "interval")
    faults += repeated("ops", "key", (op.key for op in profile.ops))
    for here, op in each("ops", profile.ops, "key"):
        faults += _op_faults(here, op)
    faults += repeated("steps", "signature", (step.signature for step in profile.steps))
    for here, step in each("steps", profile.steps):
        faults += _step_faults(here, step, len(profile.ops))
    faults += repeated(
        "peers", "task and signature", (f"{p.device} {p.signature}" for p in profile.peers)
    )
    for here, step in each("peers", profile.peers):
        faults += _step_faults(here, step, len(profile.ops))
    faults += repeated(
        "links", "link", (f"{link.sender} to {link.receiver}" for link in profile.links)
    )
    for here, link in each("links", profile.links):
        faults += AMOUNT.of(here, link, "delay", "each")
        faults += POSITIVE.of(here, link, "bandwidth")
        faults += at_least(0).of(here, link, "transfers")
        faults += SHARE.of(here, link, "fit")
    faults += at_least(0).of("memory", profile.memory, "live", "peak")
    if profile.roofs is not None:
        faults += [f"roofs.{fault}" for fault in roofs_document.check(profile.roofs)]
    if profile.calls is not None:
        faults += [f"calls.{fault}" for fault in calls_document.faults(profile.calls)]
    if profile.compiled is not None:
        faults += [f"compiled.{fault}" for fault in compiled_document.faults(profile.compiled)]
    if profile.under is not None:
        faults += [f"under.{fault}" for fault in plan_settings.faults(profile.under)]
    return faults


load = files.reader(Profile, SCHEMA, check, {1: tensorflow_alone})


def _op_faults(here: str, op: Op) -> Iterator[str]:
    yield from AMOUNT.of(here, op, "count", "output_bytes", "own")
    cases = (f"{time.threads} threads {time.placement}" for time in op.times)
    yield from repeated(f"{here}.times", "case", cases)
    for at, time in each(f"{here}.times", op.times):
        yield from at_least(1).of(at, time, "threads")
        yield from _measured(at, time)
        yield from repeated(f"{at}.counts", "event", (count.event for count in time.counts))
        for count in time.counts:
            where = f"{at}.counts ({count.event})"
            yield from AMOUNT.of(where, count, "value", "spread")
            yield from _RUNNING.of(where, count, "running")


def _step_faults(here: str, step: Step, ops: int) -> Iterator[str]:
    yield from at_least(0).of(here, step, "executions")
    # a sum of parts, so 1 with its rounding
    yield from Bound(SHARE.words, lambda share: 0 <= share <= 1 + 1e-9).of(here, step, "share")
    yield from _measured(f"{here}.wall", step.wall)
    yield from _measured(f"{here}.span", step.span)
    for at, tried in each(f"{here}.tried", step.tried):
        yield from at_least(1).of(at, tried, "threads")
        yield from _measured(f"{at}.ops", tried.ops)
    for part in step.parts:
        yield from AMOUNT.of(f"{here}.parts ({part.name})", part, "seconds")
    an_op, a_node = index(ops, "ops"), index(len(step.nodes), "nodes")
    for at, collective in each(f"{here}.collectives", step.collectives):
        yield from a_node.of(at, collective, "node")
        yield from at_least(1).of(at, collective, "bytes")
        yield from _measured(f"{at}.took", collective.took)
    for at, node in each(f"{here}.nodes", step.nodes, "name"):
        yield from an_op.of(at, node, "op")
        yield from a_node.faults(f"{at}.inputs", *node.inputs)
        yield from a_node.faults(f"{at}.control", *node.control)
        if node.slots and len(node.slots) != len(node.inputs):
            yield f"{at}.slots must be {len(node.inputs)}, one an input, got {len(node.slots)}"
        for other, slot in zip(node.inputs, node.slots, strict=False):
            given = step.nodes[other].outputs if 0 <= other < len(step.nodes) else ()
            bound = index(len(given), f"outputs of nodes[{other}]") if given else at_least(0)
            yield from bound.faults(f"{at}.slots", slot)
        an_input = index(len(node.inputs), "inputs")
        for where, tensor in each(f"{at}.outputs", node.outputs):
            yield from AMOUNT.of(where, tensor, "bytes")
            yield from an_input.of(where, tensor, "alias")
        yield from AMOUNT.of(at, node, "repeats", "output_bytes")
        if node.start is not None:
            yield from at_least(node.start, "its start").of(at, node, "end")


def _measured(here: str, found: OpTime | Samples) -> Iterator[str]:
    yield from at_least(0).of(here, found, "samples")
    yield from AMOUNT.of(here, found, "min", "median", "spread")
    yield from at_most(found.median, "the median").of(here, found, "min")
