"""One profiling session: find the steps of a running job, climb, keep what was measured."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dltune.documents.machine import Machine
from dltune.documents.profile import Profile
from dltune.job import messages
from dltune.job.diagnosis import Sightings, crash_of, why_no_step
from dltune.job.launch import Event, Job, Process
from dltune.job.orders import Orders, machine_lines
from dltune.job.record import Record, main_graph, op_seconds, span, step_graphs
from dltune.machine.placement import cores_for, ladder, placements
from dltune.profile.climb import Case, Climb
from dltune.profile.document import Own, assemble

# executions of the main step under the job's own settings: the first few warm up
WARM_UP, OWN = 3, 12
# a long step need not run so often before the climb begins
OWN_SECONDS, OWN_LEAST = 30.0, 3
# repeats of one case: at least, and the spread at which the heavy ops are steady
LEAST_REPEATS, STEADY = 3, 0.05
HEAVY_SHARE = 0.9
# a step that takes less of the op time than this is not one to tune
LEAST_SHARE = 0.02
# a step that has not run for so many times its usual pause has ended, such as a validation step
GONE = 20.0


@dataclass(frozen=True)
class Progress:
    """For the progress line. `left` is in seconds, None while it is not known."""

    phase: str
    step: int
    case: Case | None = None
    climbing: int = 0
    left: float | None = None


class _Phase(enum.Enum):
    DISCOVER = "finding the training step"
    CLIMB = "climbing"
    DONE = "done"


@dataclass
class _Sample:
    """The executions seen so far of the case that runs now."""

    version: int = 1
    repeats: dict[int, int] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)


class Session:
    """Drives one job. `run` blocks until the profile is whole or the job has ended."""

    def __init__(
        self,
        machine: Machine,
        command: Sequence[str],
        *,
        interval: int,
        cap: int,
        tell: Callable[[Progress], None],
        keep: Callable[[Profile], None],
    ) -> None:
        """`cap`: most repeats of one case. `keep` is given every profile worth keeping, partial
        ones too, the whole one last."""
        self.machine = machine
        self.command = tuple(command)
        self.interval = interval
        self.cap = max(cap, LEAST_REPEATS)
        self.tell = tell
        self.keep = keep
        self.seen = Sightings()
        self.profile: Profile | None = None
        self.notes: list[str] = []
        cases: list[Case] = [
            (n, p) for n in ladder(machine, interval) for p in placements(machine, n)
        ]
        self.climb = Climb(cases)
        self._phase = _Phase.DISCOVER
        self._processes: dict[int, Process] = {}
        self._pid: int | None = None
        self._targets: list[int] = []
        self._own: Own | None = None
        self._sample = _Sample()
        self._steps = 0
        self._began = time.monotonic()

    def greet(self, process: Process) -> list[str]:
        """First orders of a process: record every graph, under the job's own settings."""
        self.seen.records[process.pid] = Record(process.hello)
        self._processes[process.pid] = process
        return [*machine_lines(self.machine), "count\t1", *Orders(1, discover=True).lines()]

    def run(self, job: Job) -> Profile:
        """The whole profile. The job still runs afterwards.

        Raises a DltuneError that tells why when the job gave no step; what had been measured until
        then has been kept.
        """
        for event in job.events(1.0):
            if event is not None:
                self._hear(event)
            if self._phase is _Phase.CLIMB:
                self._climb_on()
            if self._phase is _Phase.DONE:
                self._save(None)
                assert self.profile is not None
                self._release()
                return self.profile
            self._report_progress()
        self._save(f"the job ended (exit code {job.exit_code}) before all was measured")
        if self.profile is None:
            raise why_no_step(self.seen, job.exit_code)
        if crash := crash_of(self.seen, job.exit_code):
            raise crash
        return self.profile

    def interrupted(self) -> None:
        """Keep what there is, as partial: the user ended the session."""
        self._save("interrupted")

    def _hear(self, event: Event) -> None:
        self.seen.add(event.message)
        if event.process is None:
            if isinstance(event.message, messages.Building):
                self.tell(
                    Progress(f"building the plugin for TensorFlow {event.message.version}", 0)
                )
            return
        record = self.seen.records[event.process.pid]
        if not isinstance(event.message, messages.Execution):
            record.add(event.message)
            return
        if self._phase is _Phase.DISCOVER:
            record.add(event.message)
            self._discover(event.process.pid)
        elif event.process.pid == self._pid:
            self._measure(record, event.message)

    def _discover(self, pid: int) -> None:
        record = self.seen.records[pid]
        main = main_graph(record)
        if main is None:
            return
        seen = record.executions[main][WARM_UP:]
        self._steps = len(record.executions[main])
        long = sum(map(span, seen)) >= OWN_SECONDS and len(seen) >= OWN_LEAST
        if len(seen) <= OWN and not long:
            return
        targets = step_graphs(record, LEAST_SHARE)
        if record.graphs[main].xla:
            return  # told by why_no_step when the job ends
        self._pid, self._targets = pid, targets
        self._own = Own.of(record, targets, WARM_UP)
        self._phase = _Phase.CLIMB
        if self.climb.case is None:
            self._phase = _Phase.DONE
        else:
            self._order_case()
        for other, process in self._processes.items():
            if other != pid:
                process.order(Orders(2).lines())

    def _order_case(self) -> None:
        """Let the targets run the climb's present case, from their next execution on."""
        case = self.climb.case
        assert case is not None and self._pid is not None
        record = self.seen.records[self._pid]
        self._sample = _Sample(self._sample.version + 1, dict.fromkeys(self._targets, 0))
        orders = Orders(
            self._sample.version,
            targets=[record.graphs[g].signature for g in self._targets],
            events=True,
            serial=True,
            fallback=(case[0], cores_for(self.machine, *case)),
            ops={
                key: (best[0], cores_for(self.machine, *best))
                for key, best in self.climb.stopped().items()
            },
        )
        self._processes[self._pid].order(orders.lines())

    def _measure(self, record: Record, execution: messages.Execution) -> None:
        if execution.graph not in self._targets or execution.version != self._sample.version:
            return
        self._steps += 1
        repeats = self._sample.repeats
        repeats[execution.graph] += 1
        if repeats[execution.graph] == 1:
            return  # the first after a change of threads warms caches and workers
        for _, key_id, threads, _, start, end, _ in execution.events:
            key = record.keys[key_id].key
            wanted = self.climb.wanted(key)
            if threads <= 0 or wanted is None or threads != wanted[0]:
                continue  # not under control: asynchronous, or may wait for another kernel
            self.climb.add(key, (end - start) * 1e-9)

    def _climb_on(self) -> None:
        repeats = self._sample.repeats
        usual = self._own.longest_wall if self._own else 0.0
        waited = time.monotonic() - self._sample.began
        if not any(repeats.values()):
            return
        patience = max(GONE * usual, 5.0)
        present = [n for n in repeats.values() if n or waited < patience]
        least = min(present) - 1
        if least < LEAST_REPEATS or (least < self.cap and not self._steady()):
            return
        self.climb.advance()
        self._save("the climb is not over")
        if self.climb.case is None:
            self._phase = _Phase.DONE
        else:
            self._order_case()

    def _steady(self) -> bool:
        """Whether the ops that make up most of the time have small spreads."""
        assert self._own is not None
        heavy = self._own.heaviest(HEAVY_SHARE)
        return all(self.climb.spread(key) <= STEADY for key in heavy)

    def _save(self, partial: str | None) -> None:
        if self._own is None:
            self._salvage()
        if self._own is None or self._pid is None:
            return
        self.profile = assemble(
            self.seen.records[self._pid],
            self._own,
            self.climb,
            machine=self.machine,
            command=self.command,
            interval=self.interval,
            partial=partial,
            notes=self.notes,
        )
        self.keep(self.profile)

    def _salvage(self) -> None:
        """A job that ended early may still have shown its steps."""
        best = max(
            self.seen.records.items(),
            key=lambda item: sum(op_seconds(e) for es in item[1].executions.values() for e in es),
            default=None,
        )
        if best is None:
            return
        pid, record = best
        targets = step_graphs(record, LEAST_SHARE)
        if targets and not record.graphs[targets[0]].xla:
            warm_up = min(WARM_UP, len(record.executions[targets[0]]) - 1)
            self._pid, self._targets = pid, targets
            self._own = Own.of(record, targets, warm_up)

    def _release(self) -> None:
        """Let every process go on as if dltune were not there."""
        for process in self._processes.values():
            process.order(Orders(self._sample.version + 1).lines())

    def _report_progress(self) -> None:
        left = None
        if self._phase is _Phase.CLIMB and self._own is not None:
            spent = time.monotonic() - self._sample.began
            per_case = max(self._own.longest_wall * (LEAST_REPEATS + 2) * 1.5, 0.01)
            left = max(per_case * self.climb.cases_left - spent, 0.0)
        self.tell(
            Progress(self._phase.value, self._steps, self.climb.case, self.climb.climbing, left)
        )
