"""Jobs that take turns: their resource usage, step graphs, step barrier and turn length.

bench, tune and gate start such jobs, rotate them and measure them. `StepFinder` finds the steps of
a job, and `StepBarrier` lets the steps run only in the job's turn. `first_turn` finds the length of
a turn. `read` returns the resources that the job has used.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dltune.job import protocol
from dltune.job.failures import Sightings
from dltune.job.launch import Event, Job, Process
from dltune.job.protocol import MOST_GRANTED, Graph, grant_line
from dltune.job.record import NANOSECOND, Record
from dltune.profile.processes import Discovery
from dltune.schemas.profile import Framework
from dltune.system.proc import stat
from dltune.system.proc.process import exists

# Resources that a job's processes have used


@dataclass(frozen=True)
class Usage:
    """Resources that a job's processes have used, from /proc.

    `cpu` in seconds; `voluntary` and `involuntary` context switches; page faults, minor and major
    together.
    """

    cpu: float
    voluntary: int
    involuntary: int
    faults: int = 0


@dataclass(frozen=True)
class Reading:
    """Totals so far: CPU seconds and page faults of all processes, ended children included, and the
    voluntary and involuntary switches of each (pid, thread)."""

    cpu: float
    switches: Mapping[tuple[int, int], tuple[int, int]]
    faults: int = 0

    def since(self, before: Reading) -> Usage:
        """Return the usage between two readings.

        The kernel keeps no count of a process's switches beyond its threads': those of a thread
        that ended between the readings are lost, its CPU time is not.
        """
        voluntary = involuntary = 0
        for thread, (now, now_forced) in self.switches.items():
            was, was_forced = before.switches.get(thread, (0, 0))
            reused = now < was or now_forced < was_forced  # another thread with an old number
            voluntary += now - (0 if reused else was)
            involuntary += now_forced - (0 if reused else was_forced)
        faults = max(self.faults - before.faults, 0)
        return Usage(max(self.cpu - before.cpu, 0.0), voluntary, involuntary, faults)


def read(session: int) -> Reading:
    """Return the totals of a job's processes now: as the job leads its own session, they are the
    processes of this session. Processes that end while they are read count as ended."""
    found = stat.session(session)
    switches = {}
    for pid in found:
        for tid in stat.threads(pid):
            if switched := stat.switches(pid, tid):
                switches[pid, tid] = switched[:2]
    return Reading(
        cpu=sum(one.user + one.kernel + one.children_cpu for one in found.values()),
        switches=switches,
        faults=sum(one.minor + one.major + one.children_faults for one in found.values()),
    )


# Step graphs of a job

# of warm steps, seconds and number that are enough to know a long step by
LONG_SECONDS, LONG_LEAST = 5.0, 1
# executions after which a graph like a known step is taken for it: the first ones warm up
LEAST_RUNS = 3
# so many more are waited for when another graph of the step has not come yet
PATIENT_RUNS = 12
# share of the smaller graph's names that are in the other graph, too
LIKE = 0.3


@dataclass(frozen=True)
class StepGraphs:
    """Graphs of one process, the main graph first: by signature, and the names of their nodes.
    `trains`: True if they train, or are XLA's, of which that is unknown."""

    pid: int
    signatures: tuple[str, ...]
    nodes: tuple[frozenset[str], ...]
    trains: bool = True


class StepFinder:
    """Finds the steps in the messages of a job's processes so far.

    It finds them again under settings that change the graphs. A setting can fuse ops, have XLA
    compile them, or let one execution run several steps, so a step's signature does not identify
    it under another setting. The script's names of layers and variables stay: the graph with the
    most of the step's nodes, by name, is the step.

    `known`: the names of the nodes of steps that train, from the same job under other settings
    (`nodes`). Graphs that do not train, such as the filling of a buffer, are not taken for them
    then.
    """

    def __init__(
        self, records: Mapping[int, Record], known: tuple[frozenset[str], ...] = ()
    ) -> None:
        self._records = records
        self._known = known
        self._discovery = Discovery(records, xla=True, seconds=LONG_SECONDS, least=LONG_LEAST)
        self._names: dict[tuple[int, int], frozenset[str]] = {}

    def find(self) -> StepGraphs | None:
        """The steps, once they have run often enough; None until then."""
        for pid, record in self._records.items() if self._known else ():
            if found := self._like_known(pid, record):
                return found
        steps = self._discovery.find()
        if steps is None:
            return None
        graphs = [self._records[steps.pid].graphs[graph] for graph in steps.targets]
        trains = steps.trains or graphs[0].xla
        return _graphs(steps.pid, graphs, trains) if trains or not self._known else None

    def _like_known(self, pid: int, record: Record) -> StepGraphs | None:
        """The graphs that are most like the known ones."""
        found: list[Graph] = []
        for known in self._known:
            _, graph = max(self._likely(pid, record, known), default=(0, None))
            if graph is not None and record.graphs[graph] not in found:
                found.append(record.graphs[graph])
            elif not found:
                return None
        if len(found) < len(self._known) and record.runs[found[0].id] < PATIENT_RUNS:
            return None
        return _graphs(pid, found)

    def _likely(self, pid: int, record: Record, known: frozenset[str]) -> Iterator[tuple[int, int]]:
        """Graphs that repeat and train, or are XLA's, and are like a known one: the number of names
        that they share with it, and which they are."""
        for graph, runs in record.runs.items():
            if runs < LEAST_RUNS or not (record.trains(graph) or record.graphs[graph].xla):
                continue
            names = self._names.setdefault((pid, graph), _names(record.graphs[graph]))
            shared = len(names & known)
            if shared >= LIKE * min(len(names), len(known)):
                yield shared, graph


def _graphs(pid: int, graphs: list[Graph], trains: bool = True) -> StepGraphs:
    by_signature: dict[str, frozenset[str]] = {}
    for graph in graphs:
        by_signature.setdefault(graph.signature, _names(graph))
    return StepGraphs(pid, tuple(by_signature), tuple(by_signature.values()), trains)


def _names(graph: Graph) -> frozenset[str]:
    return frozenset(node.name for node in graph.nodes)


# The step barrier

# seconds without a message after which other work is done: while a job starts, and in its turn
BRIEFLY, TICK = 0.02, 0.1


class JobEndedError(Exception):
    """The job ended when it should have taken a turn."""


@dataclass(frozen=True)
class Taken:
    """Record of a turn of `executions` executions.

    `steps`: the seconds of each step, the first included; `seconds`: from grant to standstill.
    `per_step`: how many executions of all step graphs one step was, None where too few were seen.
    `scheduling`: E of each execution whose transfers a plan orders.
    """

    executions: int
    steps: tuple[float, ...]
    seconds: float
    per_step: float | None
    used: Usage
    scheduling: tuple[float, ...] = ()


class StepBarrier:
    """One job whose steps wait at the step barrier unless it has its turn.

    `signatures` are the job's step graphs, the main graph first. Without any, `steps` are sought
    in the job's messages; its processes must have been ordered to report every graph.
    """

    def __init__(
        self,
        signatures: Sequence[str],
        heard: Callable[[Record, protocol.Execution], None] = lambda *_: None,
        known: tuple[frozenset[str], ...] = (),
    ) -> None:
        """`heard` is called with each execution of the process that leads. `known`: names of the
        steps' nodes in another run of the job (`StepGraphs.nodes`)."""
        self.sightings = Sightings()
        self.steps: StepGraphs | None = None
        self._finder = None if signatures else StepFinder(self.sightings.records, known)
        self.ended = False
        self.building = False  # the plugin, for the job's framework
        self.news = time.monotonic()  # when the job last sent a message
        self._hear_execution = heard
        self._signatures = tuple(signatures)
        self._job: Job | None = None
        self._steppers: dict[int, Process] = {}
        self._lead: int | None = None
        self.stood: int | None = None  # CLOCK_MONOTONIC ns when the process that leads first did
        self._waiting: dict[int, int] = {}  # pid -> CLOCK_MONOTONIC ns since when it waits
        self._granted = 0
        self._starts: dict[str, list[int]] = defaultdict(list)

    def begin(self, job: Job) -> None:
        self._job = job
        self.news = time.monotonic()

    @property
    def standing(self) -> bool:
        """True if every process with step graphs waits at the step barrier."""
        return bool(self._steppers) and self._steppers.keys() == self._waiting.keys()

    @property
    def lead(self) -> int | None:
        """The process whose steps are timed; None until it waits before one."""
        return self._lead

    @property
    def graphs(self) -> int:
        """Number of step graphs."""
        return len(self._signatures)

    @property
    def exit_code(self) -> int | None:
        assert self._job is not None
        return self._job.exit_code

    @property
    def pools(self) -> protocol.Device | None:
        """The framework's threads in the process that leads, as they were made."""
        return self.sightings.records[self._lead].settings() if self._lead is not None else None

    @property
    def framework(self) -> Framework:
        """The job's."""
        assert self._lead is not None
        return self.sightings.records[self._lead].framework()

    def order(self, lines: Sequence[str]) -> None:
        """Orders for every process with step graphs, obeyed from the next execution on."""
        for process in self._steppers.values():
            process.order(lines)

    def release(self) -> None:
        """Let the job go on, so that it can hear the signal that ends it."""
        self.order([grant_line(MOST_GRANTED)])

    def listen(self, tick: float, until: Callable[[], bool] = lambda: False) -> None:
        """Receive the job's messages, until `until` or nothing has come for `tick` seconds."""
        assert self._job is not None
        for event in self._job.events(tick):
            if event is None:
                return
            self._hear(event)
            if until():
                return
        self.ended = True

    def take(self, executions: int, idle: Callable[[], None] = lambda: None) -> Taken:
        """Let so many executions of the step graphs run, all together. Blocks until they have.

        `idle` is called whenever the job has sent nothing for TICK seconds. The time at the
        barrier is in no step: an execution's start is taken behind it, and the last step ends
        when the next execution arrives there.

        Raises JobEndedError when the job ends first.
        """
        assert self._job is not None
        self.listen(0)  # what happened between turns
        if self.ended:
            raise JobEndedError
        before = read(self._job.pid)
        opened = time.monotonic_ns()
        self._granted = executions
        self._waiting.clear()
        self.order([grant_line(executions)])
        while not self.standing:
            self.listen(TICK, until=lambda: self.standing)
            if self.ended or (self._lead is not None and not exists(self._lead)):
                raise JobEndedError
            if not self.standing:
                idle()
        self._granted = 0
        assert self._lead is not None
        closed = self._waiting[self._lead]
        used = read(self._job.pid).since(before)
        steps, per_step = self._steps(opened, closed)
        return Taken(executions, steps, (closed - opened) * NANOSECOND, per_step, used)

    def _steps(self, opened: int, closed: int) -> tuple[tuple[float, ...], float | None]:
        """Steps between `opened` and `closed`, and the executions that each is made of.

        With one step graph the execution that waits at the step barrier is the next step's start;
        with several it can be another graph's, so the last step is not counted.
        """
        inside = {s: [t for t in starts if t >= opened] for s, starts in self._starts.items()}
        main = inside.get(self._signatures[0], [])
        per_step = None
        if len(main) > 1:
            between = sum(main[0] <= t < main[-1] for starts in inside.values() for t in starts)
            per_step = between / (len(main) - 1)
        if len(self._signatures) == 1:
            main = [*main, closed]
            per_step = 1.0
        steps = [(b - a) * NANOSECOND for a, b in itertools.pairwise(main)]
        self._starts.clear()
        return tuple(steps), per_step

    def _hear(self, event: Event) -> None:
        message, process = event.message, event.process
        self.news = time.monotonic()
        self.sightings.add(message)
        if process is None:
            self.building = isinstance(message, protocol.Building)
            return
        if isinstance(message, protocol.Waiting):
            late = process.pid not in self._steppers and self._granted
            self._steppers[process.pid] = process
            if self._lead is None:
                self._lead, self.stood = process.pid, message.at
            if late:  # another rank, for which the ranks in their turn can be waiting
                process.order([grant_line(self._granted)])
            else:
                self._waiting[process.pid] = message.at
            return
        record = self.sightings.records[process.pid]
        if not isinstance(message, protocol.Execution):
            record.add(message)
            return
        if message.graph not in record.graphs:
            return  # its messages were lost
        if process.pid == self._lead:
            self._starts[record.graphs[message.graph].signature].append(message.start)
            self._hear_execution(record, message)
        if self._finder and self.steps is None:
            record.add(message)
            if found := self._finder.find():
                self.steps, self._signatures = found, found.signatures
                self._stop_at(found)

    def _stop_at(self, found: StepGraphs) -> None:
        """The steps were found: send the orders that hold from now on."""


# Length of a turn

# steps of a turn: one that warms up, and at least so many that count
WARM_UP, LEAST_STEPS = 1, 3
# executions of each step graph in a job's first turn, which is not counted: kernels are made in it,
# and it shows how long a step takes
FIRST_EXECUTIONS = 4
# how often the first turn is doubled where it showed no whole step
FIRST_TURNS = 5
# executions of each step graph that show whether some take much longer than the first ones: between
# short epochs, or next to others on the machine
EPOCHS = 32
# times as long as planned that a turn can take
LONGEST = 4.0


@dataclass(frozen=True)
class Allotment:
    """Number of executions in a job's turn, found in a first turn that is not counted.

    A turn: so many executions, at least `least`, which are so many steps and take so many seconds.
    The first `warm_up` of its steps do not count. `share`: of it, as much as takes no longer than
    planned, where some steps take much longer than the first ones.
    """

    executions: int
    steps: float
    seconds: float
    least: int
    warm_up: int = WARM_UP
    share: float = 1.0

    def shortened(self, share: float) -> Allotment:
        """Return the allotment with that share of the executions, but at least `least`."""
        executions = max(min(self.least, self.executions), math.ceil(self.executions * share))
        share = executions / self.executions
        return dataclasses.replace(
            self,
            executions=executions,
            steps=share * self.steps,
            seconds=share * self.seconds,
            share=1.0,
        )


def first_turn(
    barrier: StepBarrier,
    seconds: float,
    least: int = LEAST_STEPS,
    idle: Callable[[], None] = lambda: None,
    first: int = FIRST_EXECUTIONS,
) -> Allotment | None:
    """Warm up, and find out how long the job's turn is: about so many seconds, and at least `least`
    steps that count. None when its main step graph runs too seldom among the others to be timed.
    `idle` as in `StepBarrier.take`; `first`: executions of each graph to begin with.

    Raises JobEndedError when the job ends first.
    """
    executions = first * barrier.graphs
    for _ in range(FIRST_TURNS):
        taken = barrier.take(executions, idle)
        if taken.steps[WARM_UP:] and taken.per_step:
            step = min(taken.steps)
            wanted = max(least, math.ceil(seconds / step)) + WARM_UP
            # with several step graphs the last step is not seen to end
            wanted += barrier.graphs > 1
            # an execution can run several steps: each that counts needs another before it
            fewest = WARM_UP + 1 + (barrier.graphs > 1)
            executions = max(fewest, math.ceil(wanted * taken.per_step))
            steps = executions / taken.per_step
            counted = WARM_UP + least + (barrier.graphs > 1)
            fewest = max(fewest, math.ceil(counted * taken.per_step))
            found = Allotment(executions, steps, max(wanted, steps) * step, fewest)
            sample = EPOCHS * barrier.graphs
            if executions <= sample:
                return found
            return dataclasses.replace(found, share=_share(found, barrier.take(sample, idle)))
        executions *= 2
    return None


def _share(planned: Allotment, sample: Taken) -> float:
    """Share of a turn that takes at most LONGEST times the planned seconds, without the sample's
    longest execution: it can hold a validation, which does not come again soon."""
    longest = max(sample.steps, default=0.0) / min(1.0, sample.per_step or 1.0)
    seconds = LONGEST * planned.seconds * sample.executions / planned.executions
    return min(1.0, seconds / max(sample.seconds - longest, seconds))
