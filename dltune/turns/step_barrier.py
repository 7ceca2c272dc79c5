"""One job whose steps wait at the step barrier unless it has its turn."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dltune.job import protocol
from dltune.job.failures import Sightings
from dltune.job.launch import Event, Job, Process
from dltune.job.protocol import grant_line
from dltune.job.record import NANOSECOND, Record
from dltune.schemas.profile import Framework
from dltune.system.proc.process import exists
from dltune.turns import usage
from dltune.turns.steps import StepFinder, StepGraphs
from dltune.turns.usage import Usage

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
    """`signatures` are the job's step graphs, the main graph first. Without any, `steps` are sought
    in the job's messages; its processes must have been ordered to report every graph."""

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
        self.order([grant_line(1 << 40)])

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
        before = usage.read(self._job.pid)
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
        used = usage.read(self._job.pid).since(before)
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
