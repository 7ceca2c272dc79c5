"""The profile document: the measurements of one job. `dltune profile` writes it.

Times are in seconds and sizes in bytes. An *op key* stands for all runs of an op that do the same
work: op type, input types and shapes, and the attributes that change the work. A *node* is one
place in a graph that runs an op.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from dltune.base import documents
from dltune.base.documents import (
    AMOUNT,
    LABEL,
    POSITIVE,
    SHARE,
    Bound,
    at_least,
    at_most,
    each,
    index,
    repeated,
)
from dltune.frameworks.capabilities import Framework as Capabilities
from dltune.frameworks.capabilities import framework as capabilities_of
from dltune.schemas.machine import Machine, Roofs
from dltune.schemas.pytorch_step import Calls, Compiled
from dltune.schemas.settings import SettingsPlan

SCHEMA = "dltune.profile/1"

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
CLOCKS = ("cpu-clock", "task-clock")  # events that are seconds
_RUNNING = Bound("above 0 and at most 1", lambda share: 0 < share <= 1)
# of parts, so 1 with its rounding
_SUM_OF_SHARES = Bound(SHARE.words, lambda share: 0 <= share <= 1 + 1e-9)


class Count(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A performance counter over the runs of an op in one case.

    `event`: name of the event.
    `value`: mean per run, over the thread that runs the op and its workers; in seconds for clocks.
    `spread`: half the interquartile range divided by the median.
    `samples`: number of counted runs.
    `running`: lowest share of a run in which the kernel really counted; below 1 the value was
      scaled up by it.
    """

    event: Annotated[str, LABEL]
    value: Annotated[float, AMOUNT]
    spread: Annotated[float, AMOUNT]
    samples: int
    running: Annotated[float, _RUNNING] = 1.0


class OpTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Times of an op at one thread count and placement, with ops run one at a time.

    `threads`: thread count.
    `placement`: `shared` fills whole tiles, so that threads share caches; `spread` uses one thread
      per tile while possible. One thread is always `spread`.
    `samples`: number of timed runs.
    `min`, `median`: seconds per run.
    `spread`: half the interquartile range divided by the median.
    `counts`: performance counters of this case.
    """

    threads: Annotated[int, at_least(1)]
    placement: Placement
    samples: Annotated[int, at_least(0)]
    min: Annotated[float, AMOUNT]
    median: Annotated[float, AMOUNT]
    spread: Annotated[float, AMOUNT]
    counts: tuple[Count, ...] = ()

    def relation_faults(self) -> Iterator[str]:
        yield from at_most(self.median, "the median").of("", self, "min")
        yield from repeated("counts", "event", (count.event for count in self.counts))


class Op(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An op key with its measured times.

    `key`: op type, input types and shapes, and the attributes that change the work; unique in a
      profile.
    `type`: op type.
    `inputs`: types and shapes of the inputs.
    `count`: runs of the op in one round of the steps; 0 for an op of peers only.
    `output_bytes`: size of the outputs of one run.
    `own`: median time under the job's own settings, with other ops running at the same time; null
      if never observed.
    `times`: one entry per measured thread count and placement; empty for an op that dltune does not
      control: an asynchronous kernel, or an op that can wait for another.
    """

    key: Annotated[str, LABEL]
    type: str
    inputs: tuple[str, ...]
    count: Annotated[int, AMOUNT]
    output_bytes: Annotated[int, AMOUNT]
    own: Annotated[float | None, AMOUNT]
    times: tuple[OpTime, ...]

    def relation_faults(self) -> Iterator[str]:
        cases = (f"{time.threads} threads {time.placement}" for time in self.times)
        yield from repeated("times", "case", cases)


class Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An output of a node.

    `dtype`: element type.
    `bytes`: size.
    `alias`: position of the node's input whose memory the output uses; null if it has its own
      memory.
    """

    dtype: str
    bytes: Annotated[int, AMOUNT]
    alias: int | None = None


class Partner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The other side of a send, a receive or a collective.

    `rendezvous`: name under which the two sides meet.
    `sender`, `receiver`: devices; empty for a collective.
    `members`: number of participants of a collective.
    `answer`: true for a receive whose sender first waits for data from this task.
    """

    rendezvous: str
    sender: str = ""
    receiver: str = ""
    members: int = 0
    answer: bool = False

    @property
    def tasks(self) -> tuple[str, str] | None:
        """The tasks of sender and receiver; None if both are in the same task, or unknown."""
        return tasks(self.sender, self.receiver)

    @property
    def tensor(self) -> str:
        return tensor(self.rendezvous)


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node of an executed graph.

    `name`, `type`: name and op type in the graph that ran, after the framework's rewriting.
    `op`: position in the profile's `ops`; null for a node that never ran a kernel, such as a
      constant.
    `inputs`: by input slot, positions of the nodes whose tensors it reads. Back edges of a loop
      (from `NextIteration`) are included.
    `slots`: by input slot, output slots of these nodes; empty if all are 0.
    `control`: positions of further nodes that must finish before it.
    `outputs`: by output slot, the tensors of the first recorded run; empty if unknown.
    `output_bytes`: size of all outputs.
    `repeats`: runs per execution of the graph: more than 1 in a loop, 0 for a node that did not
      run.
    `start`, `end`: time since the first op, in one sampled execution under the job's own settings;
      null if the node did not run in it.
    `live`: bytes that the allocator held at its end in that execution.
    `scratch`: bytes that its kernel allocated and released; null if unknown.
    `partner`: the other side of a send, a receive or a collective.
    `stateful`: true if the node keeps state between runs, or changes an input.
    """

    name: Annotated[str, LABEL]
    type: str
    op: int | None
    inputs: tuple[int, ...]
    control: tuple[int, ...]
    output_bytes: Annotated[int, AMOUNT]
    repeats: Annotated[float, AMOUNT]
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
        """Duration in the sampled execution; 0 if the node did not run in it."""
        return 0.0 if self.start is None or self.end is None else self.end - self.start

    @property
    def received(self) -> tuple[str, str] | None:
        """The tasks between which the node receives a tensor, sender and receiver; None if it
        receives nothing from another task."""
        return self.partner.tasks if self.type == "_Recv" and self.partner else None

    def relation_faults(self) -> Iterator[str]:
        if self.slots and len(self.slots) != len(self.inputs):
            yield (
                f"slots must have length {len(self.inputs)} (one for each input), got "
                f"{len(self.slots)}"
            )
        if any(tensor.alias is not None for tensor in self.outputs):
            an_input = index(len(self.inputs), "inputs")
            for here, tensor in each("outputs", self.outputs):
                yield from an_input.of(here, tensor, "alias")
        if self.start is not None and self.end is not None and self.end < self.start:
            yield from at_least(self.start, "the start").of("", self, "end")


class Samples(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Repeated measurements of one quantity.

    `samples`: number of measurements.
    `min`, `median`: seconds.
    `spread`: half the interquartile range divided by the median.
    """

    samples: Annotated[int, at_least(0)]
    min: Annotated[float, AMOUNT]
    median: Annotated[float, AMOUNT]
    spread: Annotated[float, AMOUNT]

    def relation_faults(self) -> Iterator[str]:
        yield from at_most(self.median, "the median").of("", self, "min")


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a step's wall time. All parts add up to the wall time.

    `name`: `ops`: at least one op runs; `executor`: between the first and the last op of an
      execution, and none runs; `input` and `communication`: only ops that wait for data or for
      another process run; `python`: between executions.
    `seconds`: time per execution.
    """

    name: Annotated[PartName, LABEL]
    seconds: Annotated[float, AMOUNT]


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the job's Python code, observed in its main thread between executions.

    `where`: file, line and function.
    `share`: share of the samples.
    """

    where: str
    share: float


class Tried(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Total time of the ops that dltune controls, all run in the same case.

    `threads`, `placement`: the case.
    `ops`: time of these ops in one execution.
    """

    threads: Annotated[int, at_least(1)]
    placement: Placement
    ops: Samples


class Collective(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A gradient sum over ranks, once per execution.

    `node`: position of the node that starts the sum.
    `bytes`: size.
    `took`: time from begin to end under the job's own settings; sums that overlap share the time in
      proportion to their bytes.
    """

    node: int
    bytes: Annotated[int, at_least(1)]
    took: Samples


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A graph whose executions repeat: a training step, or one of several (a GAN has two).

    `signature`: digest of the graph.
    `name`: name of the function.
    `executions`: number of executions observed.
    `share`: share of the total op time.
    `wall`: from the start of one execution to the start of the next, under the job's own settings.
    `span`: from the first op of an execution to its last, under the job's own settings.
    `nodes`: nodes of the graph.
    `parts`: parts of the wall time.
    `lines`: Python code that ran between executions.
    `device`: device with its task, as the framework names it; empty if unknown.
    `tried`: total op time of an execution, by thread count and placement.
    `collectives`: gradient sums of the execution.
    """

    signature: str
    name: str
    executions: Annotated[int, at_least(0)]
    share: Annotated[float, _SUM_OF_SHARES]
    wall: Samples
    span: Samples
    nodes: tuple[Node, ...]
    parts: tuple[Part, ...] = ()
    lines: tuple[Line, ...] = ()
    device: str = ""
    tried: tuple[Tried, ...] = ()
    collectives: tuple[Collective, ...] = ()

    def relation_faults(self) -> Iterator[str]:
        a_node = index(len(self.nodes), "nodes")
        for here, collective in each("collectives", self.collectives):
            yield from a_node.of(here, collective, "node")
        # paths are made for faults alone
        if all(map(self._holds_references_of, self.nodes)):
            return
        for here, node in each("nodes", self.nodes):
            yield from a_node.faults(f"{here}.inputs", *node.inputs)
            yield from a_node.faults(f"{here}.control", *node.control)
            for other, slot in zip(node.inputs, node.slots, strict=False):
                given = self.nodes[other].outputs if 0 <= other < len(self.nodes) else ()
                bound = index(len(given), f"outputs of nodes[{other}]") if given else at_least(0)
                yield from bound.faults(f"{here}.slots", slot)

    def _holds_references_of(self, node: Node) -> bool:
        """Return True if this step has all nodes and outputs that a node refers to."""
        size = len(self.nodes)
        return all(0 <= other < size for other in (*node.inputs, *node.control)) and all(
            0 <= slot < (len(self.nodes[other].outputs) or math.inf)
            for other, slot in zip(node.inputs, node.slots, strict=False)
        )


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A network link, estimated from the tensors that one task received from another.

    Tensors arrive one after the other, after `delay` seconds of a step; each takes `each` seconds
    plus its bytes divided by `bandwidth`.

    `sender`, `receiver`: tasks.
    `delay`, `each`: seconds.
    `bandwidth`: bytes per second; null if arrival times do not depend on the size, for example when
      both tasks share a host.
    `transfers`: number of transfers observed.
    `fit`: part of the variance of the transfer times that this model explains (R²).
    """

    sender: str
    receiver: str
    delay: Annotated[float, AMOUNT]
    each: Annotated[float, AMOUNT]
    bandwidth: Annotated[float | None, POSITIVE]
    transfers: Annotated[int, at_least(0)]
    fit: Annotated[float, SHARE]


class Framework(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The framework that ran the job.

    `name`: `tensorflow`, `pytorch` or `jax`.
    `version`: version of the framework.
    `git`: revision that the framework was built from.
    `python`: version of the job's Python.
    `lacks`: CPU instructions that the machine has and the framework was built without, such as
      `AVX2`; null if unknown.
    """

    name: str
    version: str
    git: str
    python: str
    lacks: tuple[str, ...] | None = None

    @property
    def release(self) -> tuple[int, ...]:
        """The first two numbers of the version, such as (2, 21); empty if it has none."""
        return tuple(map(int, re.findall(r"\d+", self.version)[:2]))

    @property
    def title(self) -> str:
        """Name and version in sentences, such as "TensorFlow 2.21.0"."""
        return f"{self.capabilities.title} {self.version}".strip()

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the framework."""
        return capabilities_of(self.name)


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Thread settings of the job, as the framework resolved them.

    `intra`: threads within an op.
    `inter`: ops at the same time.
    """

    intra: Annotated[int, at_least(1)]
    inter: Annotated[int, at_least(1)]


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Memory held by the framework's CPU allocator.

    `live`: bytes between steps.
    `peak`: highest number of bytes within a step.
    """

    live: Annotated[int, at_least(0)]
    peak: Annotated[int, at_least(0)]


class Ratio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time with a measure divided by time without it.

    `pairs`: number of pairs measured.
    `median`: median of the pairs.
    `low`, `high`: 95 % confidence interval of the median.
    """

    pairs: int
    low: Annotated[float, AMOUNT]
    median: Annotated[float, AMOUNT]
    high: float


class Total(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A counter over one interval of the job, by place.

    `event`: name of the event.
    `ops`: in ops.
    `gaps`: in the threads that run ops, outside ops.
    `others`: in all other threads.
    `process`: in the whole process, as the kernel accounts for it.
    """

    event: str
    ops: float
    gaps: float
    others: float
    process: float


class Counters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Performance counters of the profile.

    `asked`: preset or events that the user named.
    `why`: sentence that explains the choice of events.
    `groups`: events counted together; groups take turns.
    `totals`: counters over one interval of the job.
    `overhead`: step time with ops recorded, divided by plain step time, both under the job's own
      settings.
    `fault_seconds`: cost of the first access to a memory page on this machine.
    """

    asked: str
    why: str
    groups: tuple[tuple[str, ...], ...]
    totals: tuple[Total, ...] = ()
    overhead: Ratio | None = None
    fault_seconds: float | None = None


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A profile: what was measured, without any decision.

    If the job has several tasks, `steps` are those of the measured task.

    `machine`: machine on which the job was measured.
    `framework`: framework that ran the job.
    `settings`: thread settings of the job.
    `interval`: interval of the hill climbing, in threads.
    `steps`: graphs whose executions repeat.
    `ops`: op keys of all steps.
    `memory`: allocator's memory; null if unknown.
    `notes`: remarks for the reader.
    `counters`: performance counters; null if none were counted.
    `under`: settings section of the plan that was in force during the measurement; null without a
      plan.
    `peers`: steps of other tasks that exchange tensors with the measured task. Their ops have no
      times of their own.
    `links`: network links to the measured task.
    `roofs`: peak performance of the machine; null if not measured.
    `calls`: a PyTorch step as a list of operator calls, for memory plans; null if not recorded.
    `compiled`: a step compiled by PyTorch; null for other jobs.
    """

    schema: str
    created: str
    dltune: str
    partial: str | None
    command: tuple[str, ...]
    machine: Machine
    framework: Framework
    settings: Settings
    interval: Annotated[int, at_least(1)]
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

    def relation_faults(self) -> Iterator[str]:
        yield from repeated("ops", "key", (op.key for op in self.ops))
        yield from repeated("steps", "signature", (step.signature for step in self.steps))
        peers = (f"{peer.device} {peer.signature}" for peer in self.peers)
        yield from repeated("peers", "task and signature", peers)
        links = (f"{link.sender} to {link.receiver}" for link in self.links)
        yield from repeated("links", "link", links)
        an_op = index(len(self.ops), "ops")
        for here, step in (*each("steps", self.steps), *each("peers", self.peers)):
            # paths are made for faults alone
            if all(map(an_op.holds, {node.op for node in step.nodes} - {None})):
                continue
            for at, node in each(f"{here}.nodes", step.nodes):
                yield from an_op.of(at, node, "op")


def task(device: str) -> str:
    """Return the task of a device, such as "/job:ps/task:0"; empty if the device names none."""
    named = re.match(r"(/job:[^/]+)(?:/replica:\d+)?(?:/task:(\d+))?(?=/|$)", device)
    return f"{named[1]}/task:{named[2] or 0}" if named else ""


def job(task: str) -> str:
    """Return the part of the cluster to which a task belongs, such as "/job:ps"."""
    return task.partition("/task:")[0]


def tasks(sender: str, receiver: str) -> tuple[str, str] | None:
    """Return the tasks of two devices; None if they are the same, or unknown."""
    both = task(sender), task(receiver)
    return both if all(both) and both[0] != both[1] else None


def tensor(rendezvous: str) -> str:
    """Return the tensor's name in a rendezvous. Unlike the number of its edge, it is the same in
    every graph."""
    return re.sub(r"^edge_\d+_(?=.)", "", rendezvous)


def is_awaited(before: str, after: str) -> bool:
    """Return True if the time between nodes of these types is a wait for other ranks."""
    return before.startswith("c10d::") or after.startswith(_CAME)


def is_clock(event: str) -> bool:
    """Return True if an event of this name, with or without a modifier, counts seconds."""
    return event.partition(":")[0] in CLOCKS


load = documents.reader(Profile, SCHEMA)
