"""A job whose steps wait at the step barrier, and the resources that its processes use.

`StepBarrier` starts such a job, lets its steps run only in the job's turn, times them, and ends the
job. `read` returns the resources that the job has used.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dltune.base.errors import DltuneError
from dltune.job import protocol
from dltune.job.failures import Sightings, why_no_step
from dltune.job.launch import Event, Job, Process
from dltune.job.protocol import MOST_GRANTED, Orders, grant_line
from dltune.job.record import NANOSECOND, Record
from dltune.plan.settings.enforce import Settings
from dltune.schemas.profile import Framework
from dltune.system.proc import stat
from dltune.system.proc.process import exists
from dltune.turns.step_finder import StepFinder, StepGraphs

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


# The step barrier

# versions of the orders of processes: until their steps are found, and then
SEEKING, FOUND = 1, 2
# seconds without a message after which other work is done: while a job starts, and in its turn
BRIEFLY, TICK = 0.02, 0.1


class TurnError(Exception):
    """Failure of `job`: it cannot take its turn. `seconds`: the limit that it exceeded."""

    def __init__(self, job: StepBarrier, seconds: float = 0.0) -> None:
        super().__init__(type(self).__doc__)
        self.job = job
        self.seconds = seconds


class JobEndedError(TurnError):
    """The job ended when it should have taken a turn, or before its first step."""


class HungError(TurnError):
    """The job hangs in its turn."""


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

    Of several ranks the first that has found the steps leads; the others wait for it in their
    collectives, so it alone waits at the step barrier.
    """

    log: Path  # its output

    def __init__(
        self,
        name: str,
        settings: Settings,
        signatures: Sequence[str] = (),
        *,
        heard: Callable[[Record, protocol.Execution], None] = lambda *_: None,
        known: tuple[frozenset[str], ...] = (),
    ) -> None:
        """`name`: as a person knows the job; `settings`: those around the ops, under which it runs.
        `heard` is called with each execution of the process that leads. `known`: names of the
        steps' nodes in another run of the job (`StepGraphs.nodes`)."""
        self.name = name
        self.settings = settings
        self.sightings = Sightings()
        self.steps: StepGraphs | None = None
        self._finder = None if signatures else StepFinder(self.sightings.records, known)
        self.ended = False
        self.building = False  # the plugin, for the job's framework
        self.began = self.news = time.monotonic()  # when it started, and last sent a message
        self._hear_execution = heard
        self._signatures = tuple(signatures)
        self._job: Job | None = None
        self._processes: dict[int, Process] = {}
        self._steppers: dict[int, Process] = {}
        self._lead: int | None = None
        self.stood: int | None = None  # CLOCK_MONOTONIC ns when the process that leads first did
        self._waiting: dict[int, int] = {}  # pid -> CLOCK_MONOTONIC ns since when it waits
        self._granted = 0
        self._starts: dict[str, list[int]] = defaultdict(list)

    def begin(self, job: Job) -> None:
        """Drive this job, which has just started."""
        self._job = job
        self.news = time.monotonic()

    def answer(self, python: protocol.Python) -> dict[str, object]:
        """Return the reply to an interpreter of the job: the settings, and the plugin in any
        case."""
        return {**self.settings.answer(python), "plugin": True}

    def greet(self, process: Process) -> list[str]:
        """Return the first orders of a process; subclasses add theirs."""
        self.sightings.records[process.pid] = Record(process.hello)
        self._processes[process.pid] = process
        return []

    def clean_up(self) -> None:
        """Subclasses remove the remains of the job, which has ended."""

    def why_not(self) -> DltuneError:
        """Return the error with the reason why the job has not come to a step."""
        return why_no_step(self.sightings, self.exit_code)

    @property
    def pid(self) -> int:
        assert self._job is not None
        return self._job.pid

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
            raise JobEndedError(self)
        before = read(self._job.pid)
        opened = time.monotonic_ns()
        self._granted = executions
        self._waiting.clear()
        self.order([grant_line(executions)])
        while not self.standing:
            self.listen(TICK, until=lambda: self.standing)
            if self.ended or (self._lead is not None and not exists(self._lead)):
                raise JobEndedError(self)
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
        self.settings.hear(event)
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
        for process in self._processes.values():
            process.order(self.standing_orders(process, found).lines())

    def standing_orders(self, process: Process, found: StepGraphs) -> Orders:
        """Return the orders of a process once the steps are known: the process that leads waits
        before its next step, and the others report no execution."""
        leads = process.pid == found.pid
        return Orders(FOUND, targets=found.signatures if leads else (), barrier=leads)
