"""State that the phases of a profiling session share, and the interface of a phase."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dltune.job.failures import Sightings
from dltune.job.launch import Job, Process
from dltune.job.protocol import REPORT, Message, Orders
from dltune.job.record import Record
from dltune.profile.assembly import Own, assemble
from dltune.profile.breakdown import PythonLines
from dltune.profile.climb import Case, Choice, Climb, Counting, Flushing, Turns
from dltune.profile.processes import WARM_UP, Discovery, Steps, answers
from dltune.schemas.machine import Machine, Roofs
from dltune.schemas.profile import Profile
from dltune.schemas.settings import SettingsPlan
from dltune.system.topology import ladder, placements


@dataclass(frozen=True)
class Progress:
    """State for the progress line. `left` is in seconds, None while it is not known."""

    phase: str
    step: int = 0
    case: Case | None = None
    climbing: int = 0
    left: float | None = None


@dataclass(frozen=True)
class ProfileRequest:
    """The job to profile, and how.

    `cap`: the most repeats of a case. `counters` are read around ops. `keep` receives every profile
    worth keeping, also partial profiles, and the whole profile last. `under`: the settings around
    the ops that were applied to the job. `look` samples the Python of a process, with the given
    seconds from one sample to the next. Until `ready` returns True the job keeps its own settings;
    once `over` returns True the profile stays partial. `roofs`: the machine's. `lacks` returns the
    instructions that the framework in a process was compiled without; called when all is measured.
    `flushes` returns True to flush denormal numbers to zero at the end and measure their cost;
    called when ops are measured. `notes`: sentences for the profile.
    """

    machine: Machine
    command: Sequence[str]
    interval: int
    cap: int
    tell: Callable[[Progress], None]
    keep: Callable[[Profile], None]
    counters: Choice | None = None
    under: SettingsPlan | None = None
    look: Callable[[int, float], PythonLines] = PythonLines
    ready: Callable[[], bool] = lambda: True
    over: Callable[[], bool] = lambda: False
    roofs: Roofs | None = None
    lacks: Callable[[int], tuple[str, ...] | None] = lambda _: None
    flushes: Callable[[], bool] = lambda: False
    notes: Sequence[str] = ()


@dataclass
class MeasuredSteps:
    """The steps of a job, and all measurements of them so far."""

    steps: Steps
    own: Own
    climb: Climb
    counting: Counting | None
    executions: int
    peers: list[tuple[Record, Own]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    climbed: bool = False  # all ops are measured
    cost: Turns | None = None  # of recording
    flushing: Flushing | None = None
    lines: PythonLines | None = None
    lacks: tuple[str, ...] | None = None


@dataclass
class SessionState:
    """State that all phases share: the job's processes, their records, orders and measurements."""

    request: ProfileRequest
    job: Job | None = None  # None until it runs
    sightings: Sightings = field(default_factory=Sightings)
    processes: dict[int, Process] = field(default_factory=dict)
    version: int = 1  # of the latest orders
    building: str | None = None
    ran: float | None = None  # when anything of the job did last, before the climb
    trained: float | None = None  # when a graph that trains was first seen
    measured: MeasuredSteps | None = None
    profile: Profile | None = None

    def __post_init__(self) -> None:
        self.records = self.sightings.records
        self.discovery = Discovery(self.records)
        self.looked = time.monotonic()  # when it was last checked that the job can come to a step

    def ask(self, pid: int) -> None:
        """Ask a process for a report."""
        if process := self.processes.get(pid):
            process.order([REPORT])

    def new_versions(self, count: int) -> int:
        """Return the first of the next `count` versions of orders."""
        self.version += count
        return self.version - count + 1

    def order_all(self, *, discover: bool) -> None:
        """Order every process to record each op, or to go on as if dltune were not there."""
        lines = Orders(self.new_versions(1), discover=discover).lines()
        for process in self.processes.values():
            process.order(lines)

    def unmeasured(self, steps: Steps) -> MeasuredSteps:
        """Return the steps as they ran under the job's own settings, to be measured."""
        machine, counters = self.request.machine, self.request.counters
        counts = ladder(machine, self.request.interval)
        return MeasuredSteps(
            steps,
            Own.of(self.records[steps.pid], steps.targets, WARM_UP),
            Climb([(count, where) for count in counts for where in placements(machine, count)]),
            Counting(counters) if counters else None,
            self.discovery.runs,
        )

    def save(self, reason: str | None = "not all thread counts have been measured") -> None:
        """Keep the measurements so far; nothing when no step was seen twice. The profile is partial
        for this reason unless all ops are measured."""
        measured = self.measured
        if measured is None:
            if (steps := self.discovery.salvage()) is None:
                return
            measured = self.unmeasured(steps)
        if measured.cost is not None and measured.counting is not None:
            measured.counting.overhead = measured.cost.ratio()
        request, pid = self.request, measured.steps.pid
        self.profile = assemble(
            self.records[pid],
            measured.own,
            measured.climb,
            measured.counting,
            measured.lines,
            machine=request.machine,
            command=tuple(request.command),
            interval=request.interval,
            partial=None if measured.climbed else reason,
            notes=(*request.notes, *measured.notes),
            under=request.under,
            roofs=request.roofs,
            lacks=measured.lacks,
            peers=measured.peers,
            answers=answers(
                graph for one in self.records.values() for graph in one.graphs.values()
            ),
            calls=self.sightings.calls.get(pid),
            compiled=self.sightings.compiled.get(pid),
        )
        request.keep(self.profile)


@dataclass(frozen=True)
class Ended:
    """The end of a session. `reason`: why the profile is partial, None if it is whole."""

    reason: str | None = None


class Phase(ABC):
    """A part of a session.

    `hear` and `advance` return the phase that comes next, as a rule the phase itself.
    """

    def __init__(self, state: SessionState) -> None:
        self.state = state

    @abstractmethod
    def hear(self, record: Record | None, message: Message) -> Phase:
        """Use a message of a process, which `record` already has unless it is an execution. There
        is no record before the process's plugin has greeted."""

    @abstractmethod
    def advance(self) -> Phase | Ended:
        """Go on if enough has come; called after each message, and every half second."""

    @abstractmethod
    def progress(self) -> Progress:
        """Return the state for the progress line."""
