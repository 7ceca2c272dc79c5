"""The protocol between a job's processes and dltune: messages to dltune, and orders to the plugin.

A message is one JSON object a line. The bootstrap sends `Python`, `Building`, `Failed`,
`Environment`, `Setting`, and the messages of adapters and of Horovod, on separate connections that
are answered once. The native plugin sends the rest after its `Plugin` greeting. Times are
CLOCK_MONOTONIC nanoseconds as the plugin counts them; the reader converts them to seconds.

Orders are lines that the plugin reads (native/core/orders.cc). Fields of a line are separated by
tabs; keys and signatures, which can hold any text, escape their tabs with backslashes. A set of
orders is between `begin` and `end` and is obeyed as a whole, from the start of a graph's next
execution.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from dltune.frameworks.capabilities import framework
from dltune.schemas import pytorch_step
from dltune.schemas.machine import Core, Machine
from dltune.schemas.plan import Candidate, Uniform
from dltune.schemas.pytorch_step import Calls

if TYPE_CHECKING:
    from dltune.system.perf.events import Event


# Messages of the bootstrap


class Python(msgspec.Struct, tag="python", frozen=True):
    """An interpreter has started."""

    pid: int
    argv: list[str]
    python: str
    environment: dict[str, str]


class Building(msgspec.Struct, tag="building", frozen=True):
    """The plugin is being built for the job's framework, once."""

    pid: int
    version: str
    framework: str = "tensorflow"

    @property
    def phase(self) -> str:
        """The phase as a progress line shows it."""
        title = framework(self.framework).title
        return f"building the plugin for {title} {self.version} (only once)"


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """A framework was imported, but the plugin could not be built or loaded."""

    pid: int
    version: str
    reason: str
    framework: str = "tensorflow"


class Environment(msgspec.Struct, tag="environment", frozen=True):
    """A framework was imported: the requested variables that are set at that time."""

    pid: int
    variables: dict[str, str]


class Setting(msgspec.Struct, tag="setting", frozen=True):
    """Actions of a hook in the job's Python so far (`Means.hooks`, `extensions.Hook`).

    Sent with a count of 0 once TensorFlow is imported, and again at once whenever `count` or `left`
    has grown: the newest of a process and a setting counts. All are sent before the first run of
    the step that they concern. `did`: a sentence; `count`: number of things acted on; `left`:
    things left alone, with the reason, a sentence each. `steps`: the most training steps in one
    execution of the step's graph (the last execution of an epoch can have fewer).
    """

    pid: int
    setting: str
    value: str
    did: str
    count: int
    left: list[str]
    steps: int = 1


class Horovod(msgspec.Struct, tag="horovod", frozen=True):
    """`hvd.init()` has returned in a rank.

    `threads`: ids of the threads it added, the background thread first, then MPI's or gloo's
    helpers. `bound`: CPUs that the process could use when its interpreter started. `settings`:
    HOROVOD_* and OMPI_MCA_* as they were for init; `overridden`: settings of the plan that had
    another value, with that value. `mpi`: the MPI library's description of itself. `slice`: the
    scheduler's time slice for the background thread, in seconds; None when it was left alone.
    """

    pid: int
    rank: int
    size: int
    local_rank: int
    local_size: int
    controller: Literal["mpi", "gloo"]
    version: str
    mpi: str | None
    threads: list[int]
    bound: list[int]
    settings: dict[str, str]
    overridden: dict[str, str]
    slice: float | None = None


class NoHorovod(msgspec.Struct, tag="no_horovod", frozen=True):
    """Horovod, or its part for TensorFlow, could not be imported."""

    pid: int
    reason: str


class Reduction(msgspec.Struct, tag="reduction", frozen=True):
    """A call that reduces gradients was traced. `bins`: number of bins in which the plan's order
    submits its dense gradients; None when the call was left alone, for the reason `why`."""

    pid: int
    shapes: list[list[int | None] | None]
    dtypes: list[str]
    bins: int | None
    why: str


class RankFailed(msgspec.Struct, tag="rank_failed", frozen=True):
    """An exception that nothing caught is about to end a rank. `at`: monotonic seconds."""

    pid: int
    at: float
    error: str


class Parallel(msgspec.Struct, tag="parallel", frozen=True):
    """State of a rank under a plan for several devices; the newest counts.

    `framework`: with its version. `consumer`: the library that has taken the plan (empty: none).
    `weights` of the job's models are in the plan, `divided` of them over devices; `outputs` of so
    many operators were. `unknown`: weights that are no operator's; `unmet`: operators' weights that
    no model has.
    `fault`, `remedy`: why the job cannot go on. `ended`: the interpreter ends.
    """

    pid: int
    rank: int
    framework: str
    consumer: Literal["", "keras", "jax", "torch"] = ""
    weights: int = 0
    divided: int = 0
    outputs: int = 0
    unknown: list[str] = []
    unmet: list[str] = []
    fault: str = ""
    remedy: str = ""
    ended: bool = False


class Called(msgspec.Struct, tag="calls", frozen=True):
    """A step of PyTorch's, call by call."""

    pid: int
    step: Calls


class Compiled(msgspec.Struct, tag="compiled", frozen=True):
    """A step of PyTorch's that the script compiles."""

    pid: int
    step: pytorch_step.Compiled


class GivenUp(msgspec.Struct, tag="given_up", frozen=True):
    """Result of a plan by which a PyTorch job drops results and computes them again.

    At most `groups` groups of calls were dropped in one of `steps` (compiled code counts as one
    group: the compiler has its budget). `peak`: the most bytes of the allocator in a step, from its
    first planned call on (None: not counted). `other`: how a step differed from the planned step;
    `left`: why the job was left alone.
    """

    pid: int
    steps: int
    groups: int
    peak: int | None
    other: str
    left: str


class Buckets(msgspec.Struct, tag="buckets", frozen=True):
    """A rank has made a model of DistributedDataParallel's with `gradients` gradients.

    `buckets`: bytes of each bucket under the plan (empty: not known yet); `left`: why the model was
    left alone.
    """

    pid: int
    rank: int
    gradients: int
    buckets: list[int]
    left: str


# Messages of the plugin


class Plugin(msgspec.Struct, tag="plugin", frozen=True):
    """The plugin is loaded and waits for its first orders."""

    pid: int
    version: str
    git: str
    python: str
    framework: str = "tensorflow"


class Device(msgspec.Struct, tag="device", frozen=True):
    """The framework's thread counts: as resolved, and as the script asked (0: not asked).

    `openmp`: the file of the OpenMP runtime that ops run on, empty for a pool of the framework's.
    """

    intra: int
    inter: int
    asked_intra: int
    asked_inter: int
    openmp: str = ""


class Partner(msgspec.Struct, frozen=True, array_like=True):
    """The rendezvous of a send, a receive or a collective with its partners. `rendezvous`: the
    name there. `sender`, `receiver`: devices, empty for a collective of `members`."""

    rendezvous: str
    sender: str = ""
    receiver: str = ""
    members: int = 0


class Node(msgspec.Struct, frozen=True, array_like=True):
    """`inputs`: nodes whose tensors it reads, by input slot; `slots`: their output slots.
    `control`: other nodes that it waits for. `waits`: it can wait for another kernel, or is
    asynchronous. `stateful`: it keeps something from one run to the next, or changes what it reads.
    """

    name: str
    type: str
    inputs: list[int]
    control: list[int]
    waits: bool
    slots: list[int] = []
    partner: Partner | None = None
    stateful: bool = False


class Output(msgspec.Struct, frozen=True, array_like=True):
    """A node's output at one slot. `alias`: the input that shares its memory, or -1 for none."""

    dtype: str
    bytes: int
    alias: int


class Graph(msgspec.Struct, tag="graph", frozen=True):
    """A graph is about to run on `device`; an `eager` graph is the training step that Python has
    called op by op, as recorded after it had run."""

    id: int
    signature: str
    name: str
    device: str
    xla: bool
    nodes: list[Node]
    eager: bool = False


class Key(msgspec.Struct, tag="key", frozen=True):
    """An op key was seen for the first time; others name it by `id`."""

    id: int
    key: str
    op: str
    inputs: str


class OutputBytes(msgspec.Struct, tag="output", frozen=True):
    key: int
    bytes: int


class Execution(msgspec.Struct, tag="execution", frozen=True):
    """One run of a graph under the orders `version`.

    `start` is absolute; events are (node, key, threads, executor thread, start, end, cores used)
    with times relative to it; threads is 0 for TensorFlow's own pool and -1 for an asynchronous
    kernel; cores used is a hexadecimal bit set of slots (core, or core count + core for the
    second hardware thread). `overhead` is the time spent in the plugin itself, over all threads,
    where ops are recorded. `live` and `peak` are bytes of the CPU allocator. `waited`: ns that the
    process has spent in eager ops that wait for input, until this execution. `counts`: for events
    whose counters were read, [index in `events`, running share, a value for each counter].
    `levels`: for each event the allocator's bytes at its end, where they are counted, and `scratch`
    the bytes that it took and gave back. `outputs`: the outputs of each node that recorded its
    first run here. `collectives`: (start, end) of each sum over this process and others.
    """

    graph: int
    number: int
    version: int
    start: int
    overhead: int
    live: int
    peak: int
    events: list[tuple[int, int, int, int, int, int, str]]
    waited: int = 0
    counts: list[list[float]] = []
    levels: list[int] = []
    scratch: list[int] = []
    outputs: list[tuple[int, list[Output]]] = []
    collectives: list[tuple[int, int]] = []


class Waiting(msgspec.Struct, tag="waiting", frozen=True):
    """An execution of a step waits at the step barrier."""

    at: int


class Admission(msgspec.Struct, frozen=True):
    admitted: int
    second_threads: int
    in_flight: float
    avoided: list[tuple[str, str]]


class Report(msgspec.Struct, tag="report", frozen=True):
    """Totals so far. `xla` and `unmarked`: seconds in XLA clusters and in eager ops; `waited`:
    seconds in eager ops that wait for input. `compilations`: first runs of clusters with inputs of
    some shapes, which took `compiling` seconds. `steps`: ended steps of PyTorch's optimizers.
    `denormal_looks`: samples of the main thread; `denormal`: samples before which it had computed
    with denormal numbers since the previous sample. `runs`: runs of each of TensorFlow's graphs
    until `at` (nanoseconds)."""

    why: str
    xla: float
    compilations: int
    compiling: float
    unmarked: float
    admission: Admission
    steps: int = 0
    denormal_looks: int = 0
    denormal: int = 0
    waited: float = 0.0
    at: int = 0
    runs: tuple[int, ...] = ()


class Thread(msgspec.Struct, frozen=True, array_like=True):
    """Use by one thread since its start: page faults, context switches, ns on a CPU.
    `counted`: it has run ops under counters."""

    tid: int
    counted: bool
    minor: int
    major: int
    voluntary: int
    involuntary: int
    cpu: int


class Totals(msgspec.Struct, tag="totals", frozen=True):
    """Use by the process since its start (fields as in `Thread`, from `minor` on), its living
    threads, and the counts in ops per group of counters."""

    process: tuple[int, int, int, int, int]
    threads: list[Thread]
    ops: list[list[float]]


class Complaint(msgspec.Struct, tag="complaint", frozen=True):
    text: str


_FromHorovod = Horovod | NoHorovod | Reduction | RankFailed
_FromAdapters = Parallel | Called | Compiled | GivenUp | Buckets
_FromBootstrap = Python | Building | Failed | Environment | Setting | _FromAdapters | _FromHorovod
_FromStep = Device | Graph | Key | OutputBytes | Execution | Waiting
_FromPlugin = Plugin | _FromStep | Report | Totals | Complaint
Message = _FromBootstrap | _FromPlugin
decode = msgspec.json.Decoder(Message).decode


# Orders to the plugin

# a plan's outcome is measured on one step in so many
RECORD_EVERY = 16


def machine_lines(machine: Machine, pools: Uniform | None = None) -> list[str]:
    """Return lines of the cores, once, before anything else, and of TensorFlow's own pools."""
    lines = [
        f"core\t{core.tile}\t{','.join(map(str, core.cpus))}" for core in _with_dense_tiles(machine)
    ]
    lines.append("cores")
    if pools:
        lines.append(uniform_line(pools.intra, pools.inter))
    return lines


def encoded(lines: Iterable[str]) -> bytes:
    """Lines as they are sent: the plugin sends a byte of a key as the character of its number."""
    return "".join(f"{line}\n" for line in lines).encode("latin-1", errors="replace")


def uniform_line(intra: int, inter: int) -> str:
    """TensorFlow's own settings to impose on devices not yet made; 0 leaves the job's."""
    return f"uniform\t{intra}\t{inter}"


def alternate_line(versions: Sequence[int]) -> str:
    """Let the executions of each graph take turns between sets of orders sent before."""
    return "\t".join(["alternate", *map(str, versions)])


# the most executions that the plugin accepts in one grant (native/core/orders.cc)
MOST_GRANTED = 2**31 - 1


def grant_line(count: int) -> str:
    """Let `count` more executions pass the step barrier, at most MOST_GRANTED."""
    return f"grant\t{count}"


def sampled_lines(targets: Sequence[str]) -> list[str]:
    """Record one in RECORD_EVERY executions of these graphs op by op."""
    plain, recorded = 1, 2
    turns = [plain] * (RECORD_EVERY - 1)
    turns.insert(RECORD_EVERY // 2, recorded)
    return [
        *Orders(plain, targets=targets).lines(),
        *Orders(recorded, targets=targets, events=True).lines(),
        alternate_line(turns),
    ]


# when its dltune vanishes the job runs as before, instead of under its last orders
DETACH = "detach\t1"
# ask for the totals so far
REPORT = "report"
# ask for the use by the process and its threads
TOTALS = "totals"


@dataclass
class Orders:
    """One set of orders. `targets` are the signatures of the graphs they are for.

    `ops` maps a key to (threads, cores); `corun` maps a key to (serial seconds, strategy 2's
    choice, strategy 3's candidates) for admission; keys in neither obey `fallback`, or TensorFlow's
    own pool. `counters` are read, as one group, around each op that is recorded. `flush`: ops of
    PyTorch's take denormal numbers for zero.
    """

    version: int
    targets: Iterable[str] = ()
    events: bool = False
    discover: bool = False
    serial: bool = False
    barrier: bool = False
    flush: bool = False
    hyperthreads: bool = False
    small: float = 0.0
    counters: Sequence[Event] = ()
    fallback: tuple[int, tuple[int, ...]] | None = None
    ops: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    corun: dict[str, tuple[float, Candidate, tuple[Candidate, ...]]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        lines = [f"begin\t{self.version}"]
        flags = {
            "events": self.events,
            "discover": self.discover,
            "serial": self.serial,
            "barrier": self.barrier,
            "flush": self.flush,
            "admission": bool(self.corun),
            "hyperthreads": self.hyperthreads,
        }
        lines += [f"{name}\t1" for name, on in flags.items() if on]
        lines += [f"target\t{escaped(signature)}" for signature in self.targets]
        lines.append(f"small\t{self.small!r}")
        lines += map(_counter, self.counters)
        if self.fallback:
            lines.append(f"default\t{self.fallback[0]}\t{_slots(self.fallback[1])}")
        lines += [
            f"op\t{escaped(key)}\t{n}\t{_slots(cores)}" for key, (n, cores) in self.ops.items()
        ]
        for key, (serial, choice, candidates) in self.corun.items():
            ways = "\t".join(map(_way, (choice, *candidates)))
            lines.append(f"corun\t{escaped(key)}\t{serial!r}\t{ways}")
        return [*lines, "end"]


def escaped(text: str) -> str:
    """Escape any text as a field."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def _slots(cores: tuple[int, ...]) -> str:
    return ",".join(map(str, cores))


def _way(candidate: Candidate) -> str:
    return f"{candidate.threads}:{int(candidate.placement == 'shared')}:{candidate.seconds!r}"


def _counter(event: Event) -> str:
    numbers = (event.type, event.config, event.config1, event.config2, int(event.exclude_kernel))
    return "\t".join(["counter", *map(str, numbers)])


def _with_dense_tiles(machine: Machine) -> list[Core]:
    import msgspec

    numbers = {tile: i for i, tile in enumerate(sorted({c.tile for c in machine.cores}))}
    return [msgspec.structs.replace(core, tile=numbers[core.tile]) for core in machine.cores]
