"""One profiling session: find the steps of a running job, climb, keep the measurements."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from dltune.frameworks.capabilities import framework
from dltune.job.failures import (
    Sightings,
    crash_of,
    hopeless,
    none_found,
    require_all_reported,
    why_no_step,
)
from dltune.job.launch import Event, Job, Process
from dltune.job.protocol import (
    DETACH,
    REPORT,
    TOTALS,
    Building,
    Execution,
    Failed,
    Orders,
    Report,
    Totals,
    alternate_line,
    machine_lines,
)
from dltune.job.record import NANOSECOND, Record
from dltune.profile.breakdown import PythonLines, between_looks
from dltune.profile.climb import Case, Choice, Climb, Counting, Flushing, Turns
from dltune.profile.document import Own, assemble, python_matters
from dltune.profile.processes import OWN, OWN_LEAST, WARM_UP, Discovery, Steps, answers, peers
from dltune.schemas.machine import Machine, Roofs
from dltune.schemas.profile import Profile, Ratio, tasks
from dltune.schemas.settings import SettingsPlan
from dltune.system.kernel_files import format_cpulist
from dltune.system.perf import events as perf_events
from dltune.system.proc.process import exists
from dltune.system.proc.stat import threads as threads_of
from dltune.system.topology import cores_for, ladder, placements

# repeats of one case: at least, and the spread at which the heavy ops are steady
LEAST_REPEATS, STEADY = 3, 0.05
# of a step that receives from other tasks: an op's time is the least of five (TicTac, section 5)
LEAST_OF_RECEIVER = 5
HEAVY_SHARE = 0.9
# a step that has not run for this many times its usual pause (or seconds) is over, or pauses
GONE, GONE_SECONDS = 20.0, 5.0
# seconds between two samples of a job that has shown no step yet
LOOK_SECONDS = 2.0
# seconds that a job can train without a step that runs again and again
SEARCH_SECONDS = 600.0
# seconds without a step after which dltune reports that there is none
STILL_SECONDS = 60.0
# seconds for which steps are recorded again after a rest, at most
ANEW_SECONDS = 5.0
GNU_OPENMP = "libgomp"


@dataclass(frozen=True)
class Progress:
    """State for the progress line. `left` is in seconds, None while it is not known."""

    phase: str
    step: int = 0
    case: Case | None = None
    climbing: int = 0
    left: float | None = None


@dataclass
class _Climbing:
    """The climb on the steps that were found: `repeats` are the executions of its present case
    in which ops are timed.

    Its orders have the versions from `version` on, one for each group of counters.
    """

    steps: Steps
    own: Own
    version: int
    receives: bool  # from other tasks
    peers: list[tuple[Record, Own]] = field(default_factory=list)
    repeats: dict[int, int] = field(default_factory=dict)
    counted: int = 0  # executions of the case in which ops are counted and not timed
    ran: dict[int, float] = field(default_factory=dict)  # when a step did last, since the climb
    gone: set[int] = field(default_factory=set)
    began: float = field(default_factory=time.monotonic)
    spent: list[float] = field(default_factory=list)  # seconds for each case so far
    training: int = 0  # executions of other graphs, which train where these do not

    def ran_last(self, graph: int) -> float:
        """Return when the graph last ran, or when the present case began if that is later."""
        return max(self.began, self.ran.get(graph, 0.0))


class Session:
    """Driver of one job. `run` blocks until the profile is whole or the job has ended."""

    def __init__(
        self,
        machine: Machine,
        command: Sequence[str],
        *,
        interval: int,
        cap: int,
        counters: Choice | None = None,
        tell: Callable[[Progress], None],
        keep: Callable[[Profile], None],
        under: SettingsPlan | None = None,
        look: Callable[[int, float], PythonLines] = PythonLines,
        ready: Callable[[], bool] = lambda: True,
        over: Callable[[], bool] = lambda: False,
        roofs: Roofs | None = None,
        lacks: Callable[[int], tuple[str, ...] | None] = lambda _: None,
        flushes: Callable[[], bool] = lambda: False,
    ) -> None:
        """`cap`: most repeats of one case. `counters` are read around ops. `keep` is given every
        profile worth keeping, partial ones too, the whole one last. `under`: the settings around
        the ops that were applied to the job. `look` samples the Python of a process, with the
        given seconds from one sample to the next. Until it is `ready` the job is left under its own
        settings; when it is `over` the profile stays partial. `roofs`: the machine's. `lacks`:
        which instructions the framework in a process was compiled without; asked when all is
        measured. `flushes`: True to flush denormal numbers to zero at the end and measure their
        cost; asked when ops are measured."""
        self.machine = machine
        self.command = tuple(command)
        self.interval = interval
        self.cap = max(cap, LEAST_REPEATS)
        self.tell = tell
        self.keep = keep
        self._under = under
        self.sightings = Sightings()
        self.profile: Profile | None = None
        self.notes: list[str] = []
        self._cases: list[Case] = [
            (n, p) for n in ladder(machine, interval) for p in placements(machine, n)
        ]
        self.climb = Climb(self._cases)
        self._groups: tuple[Sequence[perf_events.Event], ...] = (
            counters.groups if counters else ((),)
        )
        self._counters = counters
        self._counting = Counting(counters) if counters else None
        self._measured = False
        self._cost: Turns | None = None
        self._flushes = flushes
        self._flushing: Flushing | None = None
        self._look = look
        self._ready, self._over = ready, over
        self.trained: float | None = None  # when a graph that trains was first seen
        self._roofs = roofs
        self._asked_lacks = lacks
        self._lacks: tuple[str, ...] | None = None
        self._resting = False  # steps are known, and the job is left alone for a while
        self._rested: float | None = None  # until when
        # executions until then, by process and graph
        self._before: dict[int, Counter[int]] = defaultdict(Counter)
        self._lines: PythonLines | None = None
        self._discovery = Discovery(self.sightings.records)
        self._climbing: _Climbing | None = None
        self._released = False
        self._processes: dict[int, Process] = {}
        self._version = 1
        self._executions = 0
        self._looked = time.monotonic()
        self._ran: float | None = None  # when anything of the job did last, before the climb
        self._building: str | None = None

    def greet(self, process: Process) -> list[str]:
        """Return the first orders of a process: record every graph, under the job's own
        settings."""
        self.sightings.records[process.pid] = Record(process.hello)
        self._processes[process.pid] = process
        self._building = None
        watched = self._climbing is None and not self._released
        return [
            *machine_lines(self.machine),
            DETACH,
            "count\t1",
            *Orders(self._version, discover=watched).lines(),
        ]

    def run(self, job: Job) -> Profile:
        """Return the whole profile. The job still runs afterwards.

        Raises a DltuneError with the reason when the job ran no step; measurements until then have
        been kept.
        """
        for event in job.events(0.5):
            if event is not None:
                self._hear(event)
            if self._over():
                self._save("the time limit was reached")
                if self.profile is None and (error := none_found(self.sightings, long=True)):
                    raise error
                break
            if self._climbing is None:
                self._look_after(job)
            elif not self._measured and self._case_is_over(self._climbing):
                self._next_case(self._climbing)
            elif not self._measured and (gone := self._gone_for(self._climbing)):
                self._save(f"the measured step did not run for {gone:.0f} s")
                break
            if self._climbing is not None and self.climb.case is None:
                if not self._measured:
                    self._climbed(self._climbing)
                if self._all_known(self._climbing):
                    return self._whole()
            if event is None and self._measured_process_ended() and job.exit_code is None:
                self._save("the measured process ended, while the job continues")
                break
            self._report_progress()
        else:
            self._save(
                f"the job ended (exit code {job.exit_code}) before the measurement was complete"
            )
        if self.profile is None:
            raise why_no_step(self.sightings, job.exit_code)
        if crash := crash_of(self.sightings, job.exit_code):
            raise crash
        return self.profile

    def release(self) -> None:
        """Let the job, and all that it starts from now on, go on as if dltune were not there."""
        self._released = True
        self._order_all(discover=False)

    @property
    def measured_step(self) -> tuple[int, int] | None:
        """Process and graph of the step, if the step is a single graph."""
        climbing = self._climbing
        if climbing is None or len(climbing.steps.targets) > 1:
            return None
        pid = climbing.steps.pid
        known = framework(self.sightings.records[pid].process.framework)
        return None if known.is_eager else (pid, climbing.steps.targets[0])

    @property
    def _timed_apart(self) -> bool:
        """True if ops are timed in separate steps, in which nothing is counted."""
        return len(self._groups) > 1 and not self._groups[0]

    @property
    def _totals(self) -> bool:
        """Whether it is asked where all events happened: in steps that are all counted."""
        return self._counting is not None and not self._timed_apart

    def ask(self, pid: int) -> None:
        """For a report of a process."""
        if process := self._processes.get(pid):
            process.order([REPORT])

    def interrupted(self) -> None:
        """Keep what there is, as partial: the user ended the session."""
        self._save("interrupted")

    def _hear(self, event: Event) -> None:
        message = event.message
        self.sightings.add(message)
        if event.process is None:
            if isinstance(message, Building):
                self._building = message.phase
            elif isinstance(message, Failed):
                self._give_up_if_hopeless()
            return
        pid = event.process.pid
        record = self.sightings.records[pid]
        climbing = self._climbing
        if not isinstance(message, Execution):
            record.add(message)
            if isinstance(message, Report):
                self._give_up_if_hopeless()
            if isinstance(message, Totals) and climbing and pid == climbing.steps.pid:
                assert self._counting is not None
                self._counting.account(message)
        elif climbing is None:
            self._ran = time.monotonic()
            record.add(message)
            known = message.graph in record.graphs
            if self.trained is None and known and record.trains(message.graph):
                self.trained = time.monotonic()
            self._look_for_steps()
        elif pid == climbing.steps.pid and record.understands(message):
            if self._measured:
                if record.same(message.graph) == climbing.steps.targets[0]:
                    for compared in (self._cost, self._flushing):
                        if compared:
                            compared.add(message)
            elif record.same(message.graph) in climbing.steps.targets:
                self._measure(climbing, record, message)
            elif record.trains(message.graph) and not climbing.steps.trains:
                climbing.training += 1
                if climbing.training > 1:
                    self._start_again()

    def _look_for_steps(self) -> None:
        """Begins the climb once there are steps and it may; until then they run unrecorded."""
        steps = None if self._resting else self._discovery.find()
        if steps is None:
            return
        if not self._ready():
            self._resting = True
            self._order_all(discover=False)
        elif self._recorded_anew(steps):
            self._start_climb(steps)

    def _record_anew(self) -> None:
        """After a rest: what was recorded while the job began is not how it runs now."""
        self._resting = False
        self._rested = time.monotonic()
        for pid, record in self.sightings.records.items():
            self._before[pid] = record.runs.copy()
        self._order_all(discover=True)

    def _recorded_anew(self, steps: Steps) -> bool:
        """Whether the steps were recorded often enough since the rest, if there was one; then what
        was recorded before it is forgotten of each graph that was."""
        if self._rested is None:
            return True

        def since(pid: int, graph: int) -> int:
            return self.sightings.records[pid].runs[graph] - self._before[pid][graph]

        late = time.monotonic() - self._rested >= ANEW_SECONDS
        if since(steps.pid, steps.targets[0]) < OWN and not late:
            return False
        for pid, record in self.sightings.records.items():
            for graph, kept in record.executions.items():
                if (anew := since(pid, graph)) >= OWN_LEAST:
                    del kept[:-anew]
        return True

    def _look_after(self, job: Job) -> None:
        """Every few seconds: make sure that the job can still come to a step."""
        if time.monotonic() - self._looked < LOOK_SECONDS or job.exit_code is not None:
            return
        self._looked = time.monotonic()
        if self._resting and self._ready():
            self._record_anew()
        elif self._rested is not None:
            self._look_for_steps()
        require_all_reported(job.pid, *self.sightings.reported())
        for process in self._processes.values():
            process.order([REPORT])
        searched = 0.0 if self.trained is None else time.monotonic() - self.trained
        if self._ready() and (error := none_found(self.sightings, long=searched >= SEARCH_SECONDS)):
            raise error

    def _measured_process_ended(self) -> bool:
        climbing = self._climbing
        return climbing is not None and not exists(climbing.steps.pid)

    def _bound(self, pid: int) -> Iterator[str]:
        """Where the threads of a process may run, if that is not everywhere, nor by a plan."""
        may: set[int] = set()
        for thread in threads_of(pid):
            with contextlib.suppress(OSError):
                may |= os.sched_getaffinity(thread)
        there = os.sched_getaffinity(0)
        if may and there - may and self._under is None:
            yield (
                f"the job or its launcher restricts it to CPU {format_cpulist(may)} of "
                f"{format_cpulist(there)}; the times as found were measured on these CPUs"
            )

    def _give_up_if_hopeless(self) -> None:
        if self._climbing is None and self._ready() and (error := hopeless(self.sightings)):
            raise error

    def _start_climb(self, steps: Steps) -> None:
        records = self.sightings.records
        record = records[steps.pid]
        own = Own.of(record, steps.targets, WARM_UP)
        self._limit_to_framework(record)
        receives = any(
            node.type == "_Recv"
            and node.partner
            and tasks(node.partner.sender, node.partner.receiver)
            for graph in steps.targets
            for node in record.graphs[graph].nodes
        )
        climbing = self._climbing = _Climbing(steps, own, self._version, receives)
        self._executions = self._discovery.runs
        if not steps.trains:
            self.notes.append(
                "no graph of the job computes gradients; dltune measured the graph that takes the "
                "most time"
            )
        self.notes += self._bound(steps.pid)
        if steps.pid in self.sightings.compiled:
            self.notes.append(
                "kernels of torch.compile (cpp_fused) run on the thread count that they were "
                "compiled for; dltune measures them but does not change their thread count"
            )
        others = [it for pid, it in records.items() if pid != steps.pid and it.runs]
        climbing.peers = [
            (it, Own.of(it, [graph], WARM_UP)) for it, graph in peers(record, steps.targets, others)
        ]
        strangers = len(others) - len({it.process.pid for it, _ in climbing.peers})
        if strangers:
            self.notes.append(
                f"dltune did not measure {strangers} other process{'es' * (strangers > 1)} of the "
                "job that trained at the same time"
            )
        self._order_case(climbing)
        for pid, process in self._processes.items():
            if pid != steps.pid:
                process.order(Orders(self._version).lines())

    def _limit_to_framework(self, record: Record) -> None:
        """Ask no more than the job's framework can do."""
        devices = record.settings()
        if devices is None:
            return
        known = framework(record.process.framework)
        counts = sorted({count for count, _ in self._cases})
        if known.uses_openmp and not devices.openmp:
            counts = counts[-1:]  # nothing sets the threads of an op, nor are they known
            if self._counters:
                self._counting = None
                self.notes.append(
                    "dltune did not read counters, because the ops do not run on OpenMP"
                )
        if known.counts_apart:
            self._groups = ((), *self._counting.choice.groups) if self._counting else ((),)
        # GNU's runtime ends the threads that a smaller team leaves over, unless it is a team of one
        if devices.openmp.startswith(GNU_OPENMP):
            counts = [*counts[:1], *counts[1:][-1:]]
        if known.places_threads:
            self._cases = [case for case in self._cases if case[0] in counts]
        else:
            self._cases = [(count, placements(self.machine, count)[0]) for count in counts]
        self.climb = Climb(self._cases)

    def _start_again(self) -> None:
        """Discard the supposed step: training has begun only now."""
        self.climb = Climb(self._cases)
        self._counting = Counting(self._counters) if self._counters else None
        self._climbing = None
        self.notes.clear()
        self._order_all(discover=True)

    def _order_all(self, *, discover: bool) -> None:
        """Order every process to record each op, or to go on as if dltune were not there."""
        self._version += 1
        for process in self._processes.values():
            process.order(Orders(self._version, discover=discover).lines())

    def _order_case(self, climbing: _Climbing) -> None:
        """Let the targets run the climb's present case, from their next execution on.

        Other graphs are still recorded, so that a later training step is detected.
        """
        case = self.climb.case
        if case is None:
            return
        self._version += 1
        climbing.version = self._version
        self._version += len(self._groups) - 1
        climbing.repeats = dict.fromkeys(climbing.steps.targets, 0)
        climbing.counted = 0
        climbing.began = time.monotonic()
        versions = range(climbing.version, self._version + 1)
        lines = [
            line
            for version, group in zip(versions, self._groups, strict=True)
            for line in self._orders(climbing, version, case, events=True, group=group).lines()
        ]
        if self._timed_apart:  # not in whole rounds: work of the job every few steps meets each
            lines.append(alternate_line([*versions] * 3 + [climbing.version]))
        elif len(versions) > 1:
            lines.append(alternate_line(versions))
        if self._totals and not climbing.spent:
            lines.append(TOTALS)
        self._processes[climbing.steps.pid].order(lines)

    def _orders(
        self,
        climbing: _Climbing,
        version: int,
        case: Case,
        *,
        events: bool,
        group: Sequence[perf_events.Event],
    ) -> Orders:
        return Orders(
            version,
            targets=self._targets(climbing),
            events=events,
            discover=events and not climbing.steps.trains,
            serial=True,
            counters=group,
            fallback=(case[0], cores_for(self.machine, *case)),
            ops={
                key: (best[0], cores_for(self.machine, *best))
                for key, best in self.climb.held().items()
            },
        )

    def _measure(self, climbing: _Climbing, record: Record, execution: Execution) -> None:
        group = execution.version - climbing.version
        if not 0 <= group < len(self._groups):
            return
        graph = record.same(execution.graph)
        self._executions += 1
        climbing.gone.discard(graph)
        climbing.ran[graph] = time.monotonic()
        timed = group == 0 or not self._timed_apart
        climbing.repeats[graph] += timed
        if climbing.repeats[graph] <= timed:
            return  # the first after a change of threads warms caches and workers
        if self._counting is not None:
            self._count(self._counting, record, execution, self._groups[group])
        if not timed:
            climbing.counted += 1
            return
        total = 0.0
        for _, key_id, threads, _, start, end, _ in execution.events:
            key = record.keys[key_id].key
            wanted = self.climb.wanted(key)
            # others are not under control: asynchronous, or can wait for another kernel
            if wanted is not None and threads == wanted[0]:
                self.climb.add(key, (end - start) * NANOSECOND)
                total += (end - start) * NANOSECOND
        self.climb.add_step(graph, total)

    def _count(
        self,
        counting: Counting,
        record: Record,
        execution: Execution,
        group: Sequence[perf_events.Event],
    ) -> None:
        for index, *counted in execution.counts:
            _, key_id, threads, *_ = execution.events[int(index)]
            key = record.keys[key_id].key
            wanted = self.climb.wanted(key)
            if wanted is not None and threads == wanted[0]:
                counting.add(group, key, wanted, counted)

    def _case_is_over(self, climbing: _Climbing) -> bool:
        """Return True if every step that still runs has run the case often enough: as often as is
        allowed, or until the ops that make up most of the time have small spreads."""
        repeats = climbing.repeats
        if not any(repeats.values()):
            return False  # the job does something else now: validation, a checkpoint
        late = time.monotonic() - max(GONE * climbing.own.longest_wall, GONE_SECONDS)
        climbing.gone |= {graph for graph in repeats if climbing.ran_last(graph) <= late}
        if climbing.gone >= repeats.keys():
            return False
        least = min(n for graph, n in repeats.items() if graph not in climbing.gone) - 1
        wanted = LEAST_OF_RECEIVER if climbing.receives else LEAST_REPEATS
        timed_groups = 1 if self._timed_apart else len(self._groups)
        if least < max(min(wanted, self.cap), 2 * timed_groups):
            return False
        if self._timed_apart and climbing.counted < 2 * (len(self._groups) - 1):
            return least >= 2 * self.cap
        heavy = filter(self.climb.has_measured, climbing.own.heaviest(HEAVY_SHARE))
        return least >= self.cap or all(self.climb.spread(key) <= STEADY for key in heavy)

    def _gone_for(self, climbing: _Climbing) -> float | None:
        """Return the seconds without a step if they are so many that the job has left the step for
        good, as for its next model."""
        quiet = time.monotonic() - max(climbing.ran_last(graph) for graph in climbing.repeats)
        alone = GONE * len(self.machine.cores) * climbing.own.longest_wall  # on one thread, at most
        return quiet if quiet > max(SEARCH_SECONDS, alone) else None

    def _next_case(self, climbing: _Climbing) -> None:
        climbing.spent.append(time.monotonic() - climbing.began)
        self.climb.advance()
        if self.climb.case is not None:
            self._save()
        self._order_case(climbing)

    def _climbed(self, climbing: _Climbing) -> None:
        """Go on when all ops are measured: the next measurements concern no single op.

        Measure the cost of denormal numbers, if there are some; otherwise the cost of recording, as
        the remaining time can be too short for both. Steps under the job's own settings take turns
        with and without recording, and without counters, like the steps that the job is known by.
        """
        self._measured = True
        self._save()
        if self._flushes():
            self._begin_flushing(climbing)
            return
        if self._counting is None:
            return
        plain, recorded = self._version + 1, self._version + 2
        self._version = recorded
        self._cost = Turns(plain, recorded)
        targets = self._targets(climbing)
        self._processes[climbing.steps.pid].order(
            [
                *([TOTALS] if self._totals else []),
                *Orders(plain, targets).lines(),
                *Orders(recorded, targets, events=True).lines(),
                alternate_line((plain, recorded)),
            ]
        )

    def _targets(self, climbing: _Climbing) -> list[str]:
        graphs = self.sightings.records[climbing.steps.pid].graphs
        return [graphs[graph].signature for graph in climbing.steps.targets]

    def _begin_flushing(self, climbing: _Climbing) -> None:
        """Begin to measure the cost of denormal numbers."""
        base, flushed = self._version + 1, self._version + 2
        self._version = flushed
        self._flushing = Flushing(base, flushed)
        self._order_flush(climbing, base, flush=False)

    def _order_flush(self, climbing: _Climbing, version: int, *, flush: bool) -> None:
        orders = Orders(version, targets=self._targets(climbing), flush=flush)
        self._processes[climbing.steps.pid].order(orders.lines())

    def _all_known(self, climbing: _Climbing) -> bool:
        if self._cost is not None and not self._cost.known:
            return False
        if self._flushing is not None and not self._flushing.known:
            if self._flushing.turns():
                self._order_flush(climbing, self._flushing.flushed, flush=True)
            return False
        if self._lines is None:
            self._order_all(discover=False)
            assert self.profile is not None
            step = self.profile.steps[0].wall.median
            self._lines = self._look(climbing.steps.pid, between_looks(step))
            if python_matters(self.profile.steps[0]):  # sampling takes time from the job
                self._lines.start()
        return self._lines.poll()

    @property
    def flushed(self) -> Ratio | None:
        """Ratio of the time of a step with denormal numbers flushed to zero to the time without
        flushing, if it was tried."""
        return self._flushing.ratio() if self._flushing else None

    def _whole(self) -> Profile:
        if self._climbing:
            self._lacks = self._asked_lacks(self._climbing.steps.pid)
        self._save()
        assert self.profile is not None
        return self.profile

    def _save(self, reason: str = "not all thread counts have been measured") -> None:
        """Keep the measurements so far; nothing when no step was seen twice. The profile is partial
        for this reason unless all ops are measured."""
        climbing = self._climbing
        steps = climbing.steps if climbing else self._discovery.salvage()
        if steps is None:
            return
        if self._cost is not None and self._counting is not None:
            self._counting.overhead = self._cost.ratio()
        record = self.sightings.records[steps.pid]
        self.profile = assemble(
            record,
            climbing.own if climbing else Own.of(record, steps.targets, WARM_UP),
            self.climb,
            self._counting,
            self._lines,
            machine=self.machine,
            command=self.command,
            interval=self.interval,
            partial=None if self._measured else reason,
            notes=self.notes,
            under=self._under,
            roofs=self._roofs,
            lacks=self._lacks,
            peers=climbing.peers if climbing else (),
            answers=answers(
                graph for one in self.sightings.records.values() for graph in one.graphs.values()
            ),
            calls=self.sightings.calls.get(steps.pid),
            compiled=self.sightings.compiled.get(steps.pid),
        )
        self.keep(self.profile)

    def _report_progress(self) -> None:
        climbing = self._climbing
        if climbing is None:
            self.tell(Progress(self._waiting_for(), self._discovery.runs))
            return
        if self._measured:
            phase = "sampling Python" if self._lines else "measuring the overhead of recording"
            if self._flushing and not self._lines:
                phase = "measuring the cost of denormal numbers"
            self.tell(Progress(phase, self._executions))
            return
        if climbing.spent:
            per_case = sum(climbing.spent) / len(climbing.spent)
        else:  # serialised and on one thread, a step is slower than the job's own
            turns = len(self._groups) if self._timed_apart else 1
            per_case = climbing.own.longest_wall * (LEAST_REPEATS + 1) * 2 * turns
        left = per_case * self.climb.cases_left - (time.monotonic() - climbing.began)
        self.tell(
            Progress(
                "trying thread counts",
                self._executions,
                self.climb.case,
                self.climb.climbing,
                max(left, 0.0),
            )
        )

    def _waiting_for(self) -> str:
        if self._building:
            return self._building
        if self.sightings.records:
            still = 0.0 if self._ran is None or self._resting else time.monotonic() - self._ran
            if still >= STILL_SECONDS:
                return (
                    f"searching for the training step, but no op has run for {STILL_SECONDS:.0f} s "
                    "(dltune diagnose --pid shows where a job waits)"
                )
            return "searching for the training step"
        if self.sightings.pythons:
            return "waiting for the job to import its framework"
        return "waiting for the job to start Python"
