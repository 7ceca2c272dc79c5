"""Phases of a session that measure the steps: the climb, comparisons of steps, and Python lines."""

from __future__ import annotations

import contextlib
import os
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence

from dltune.frameworks.capabilities import framework
from dltune.job.protocol import TOTALS, Execution, Message, Orders, Totals, alternate_line
from dltune.job.record import NANOSECOND, Record
from dltune.profile.assembly import Own, python_matters
from dltune.profile.breakdown import between_looks
from dltune.profile.climb import Case, Climb, Flushing, Turns
from dltune.profile.processes import WARM_UP, Steps, peers
from dltune.profile.session_state import Ended, Phase, Progress, SessionState
from dltune.schemas.profile import tasks
from dltune.system.kernel_files import format_cpulist
from dltune.system.perf.events import Event
from dltune.system.proc.stat import threads as threads_of
from dltune.system.topology import cores_for, placements

# repeats of one case: at least, and the spread at which the heavy ops are steady
LEAST_REPEATS, STEADY = 3, 0.05
# repeats for a step that receives from other tasks: an op's time is the least of five (TicTac,
# section 5)
LEAST_OF_RECEIVER = 5
HEAVY_SHARE = 0.9
# a step that has not run for this many times its usual pause (or seconds) is over, or pauses
GONE, GONE_SECONDS = 20.0, 5.0
# seconds that a job can train without a step that runs again and again
SEARCH_SECONDS = 600.0
GNU_OPENMP = "libgomp"


class _StepPhase(Phase):
    """A phase in which the steps are known."""

    def __init__(self, state: SessionState) -> None:
        super().__init__(state)
        assert state.measured is not None
        self.measured = state.measured

    def hear(self, record: Record | None, message: Message) -> Phase:
        if record is None or record.process.pid != self.measured.steps.pid:
            return self
        if isinstance(message, Totals):
            assert self.measured.counting is not None
            self.measured.counting.account(message)
        elif isinstance(message, Execution) and record.understands(message):
            return self._executed(record, message)
        return self

    @abstractmethod
    def _executed(self, record: Record, execution: Execution) -> Phase:
        """Use an execution of the measured process."""

    def _order(self, lines: Sequence[str]) -> None:
        """Send orders to the measured process."""
        self.state.processes[self.measured.steps.pid].order(lines)

    def _targets(self) -> list[str]:
        graphs = self.state.records[self.measured.steps.pid].graphs
        return [graphs[graph].signature for graph in self.measured.steps.targets]


class Climbing(_StepPhase):
    """The climb over thread counts: its cases are measured one after the other.

    The orders of a case have the versions from `_version` on, one for each group of counters.
    """

    def __init__(self, state: SessionState, steps: Steps, search: Phase) -> None:
        """`search` continues if these prove not to be the steps."""
        state.measured = state.unmeasured(steps)
        super().__init__(state)
        self._search = search
        self._cap = max(state.request.cap, LEAST_REPEATS)
        counters = state.request.counters
        self._groups: tuple[Sequence[Event], ...] = counters.groups if counters else ((),)
        self._spent: list[float] = []  # seconds for each case so far
        self._ran: dict[int, float] = {}  # when a step did last, since the climb
        self._gone: set[int] = set()
        self._training = 0  # executions of other graphs, which train while these do not
        record = state.records[steps.pid]
        self._limit_to_framework(record)
        self._receives = any(  # from other tasks
            node.type == "_Recv"
            and node.partner
            and tasks(node.partner.sender, node.partner.receiver)
            for graph in steps.targets
            for node in record.graphs[graph].nodes
        )
        if not steps.trains:
            self.measured.notes.append(
                "no graph of the job computes gradients; dltune measured the graph that takes the "
                "most time"
            )
        self.measured.notes += self._bound()
        if steps.pid in state.sightings.compiled:
            self.measured.notes.append(
                "kernels of torch.compile (cpp_fused) run on the thread count that they were "
                "compiled for; dltune measures them but does not change their thread count"
            )
        self._add_peers(record)
        self._order_case()
        for pid, process in state.processes.items():
            if pid != steps.pid:
                process.order(Orders(state.version).lines())

    def advance(self) -> Phase | Ended:
        climb = self.measured.climb
        if self._case_is_over():
            self._spent.append(time.monotonic() - self._began)
            climb.advance()
            if climb.case is None:
                return self._climbed().advance()
            self.state.save()
            self._order_case()
        elif gone := self._gone_for():
            return Ended(f"the measured step did not run for {gone:.0f} s")
        return self

    def progress(self) -> Progress:
        climb = self.measured.climb
        if self._spent:
            per_case = sum(self._spent) / len(self._spent)
        else:  # serialised and on one thread, a step is slower than the job's own
            turns = len(self._groups) if self._timed_apart else 1
            per_case = self.measured.own.longest_wall * (LEAST_REPEATS + 1) * 2 * turns
        left = per_case * climb.cases_left - (time.monotonic() - self._began)
        return Progress(
            "trying thread counts",
            self.measured.executions,
            climb.case,
            climb.climbing,
            max(left, 0.0),
        )

    @property
    def _timed_apart(self) -> bool:
        """True if ops are timed in separate steps, in which nothing is counted."""
        return len(self._groups) > 1 and not self._groups[0]

    @property
    def _totals(self) -> list[str]:
        """The order for where all events happened: in steps that are all counted."""
        return [TOTALS] if self.measured.counting is not None and not self._timed_apart else []

    def _limit_to_framework(self, record: Record) -> None:
        """Limit the measurements to what the job's framework can do."""
        devices, measured, machine = record.settings(), self.measured, self.state.request.machine
        if devices is None:
            return
        known = framework(record.process.framework)
        cases = measured.climb.cases
        counts = sorted({count for count, _ in cases})
        if known.uses_openmp and not devices.openmp:
            counts = counts[-1:]  # nothing sets the threads of an op, nor are they known
            if measured.counting:
                measured.counting = None
                measured.notes.append(
                    "dltune did not read counters, because the ops do not run on OpenMP"
                )
        if known.counts_apart:
            self._groups = ((), *measured.counting.choice.groups) if measured.counting else ((),)
        # GNU's runtime ends the threads that a smaller team leaves over, unless it is a team of one
        if devices.openmp.startswith(GNU_OPENMP):
            counts = [*counts[:1], *counts[1:][-1:]]
        if known.places_threads:
            cases = tuple(case for case in cases if case[0] in counts)
        else:
            cases = tuple((count, placements(machine, count)[0]) for count in counts)
        measured.climb = Climb(cases)

    def _bound(self) -> Iterator[str]:
        """Yield a note on the allowed CPUs of the process, if they are restricted other than by a
        plan."""
        may: set[int] = set()
        for thread in threads_of(self.measured.steps.pid):
            with contextlib.suppress(OSError):
                may |= os.sched_getaffinity(thread)
        there = os.sched_getaffinity(0)
        if may and there - may and self.state.request.under is None:
            yield (
                f"the job or its launcher restricts it to CPU {format_cpulist(may)} of "
                f"{format_cpulist(there)}; the times as found were measured on these CPUs"
            )

    def _add_peers(self, record: Record) -> None:
        """Add the parts of the steps that other processes run, as they are recorded so far."""
        others = [it for it in self.state.records.values() if it is not record and it.runs]
        self.measured.peers = [
            (it, Own.of(it, [graph], WARM_UP))
            for it, graph in peers(record, self.measured.steps.targets, others)
        ]
        strangers = len(others) - len({it.process.pid for it, _ in self.measured.peers})
        if strangers:
            self.measured.notes.append(
                f"dltune did not measure {strangers} other process{'es' * (strangers > 1)} of the "
                "job that trained at the same time"
            )

    def _order_case(self) -> None:
        """Let the targets run the climb's present case, from their next execution on.

        Other graphs are still recorded, so that a later training step is detected.
        """
        case = self.measured.climb.case
        assert case is not None, "the climb is over"
        self._version = self.state.new_versions(len(self._groups))
        # executions of the case in which ops are timed, and in which they are only counted
        self._repeats = dict.fromkeys(self.measured.steps.targets, 0)
        self._counted = 0
        self._began = time.monotonic()
        versions = range(self._version, self.state.version + 1)
        lines = [
            line
            for version, group in zip(versions, self._groups, strict=True)
            for line in self._orders(version, case, group).lines()
        ]
        if self._timed_apart:  # not in whole rounds: work of the job every few steps meets each
            lines.append(alternate_line([*versions] * 3 + [self._version]))
        elif len(versions) > 1:
            lines.append(alternate_line(versions))
        if not self._spent:
            lines += self._totals
        self._order(lines)

    def _orders(self, version: int, case: Case, group: Sequence[Event]) -> Orders:
        machine = self.state.request.machine
        return Orders(
            version,
            targets=self._targets(),
            events=True,
            discover=not self.measured.steps.trains,
            serial=True,
            counters=group,
            fallback=(case[0], cores_for(machine, *case)),
            ops={
                key: (best[0], cores_for(machine, *best))
                for key, best in self.measured.climb.held().items()
            },
        )

    def _executed(self, record: Record, execution: Execution) -> Phase:
        steps = self.measured.steps
        if record.same(execution.graph) in steps.targets:
            self._measure(record, execution)
        elif record.trains(execution.graph) and not steps.trains:
            self._training += 1
            if self._training > 1:  # discard the supposed step: training has begun only now
                self.state.measured = None
                self.state.order_all(discover=True)
                return self._search
        return self

    def _measure(self, record: Record, execution: Execution) -> None:
        group = execution.version - self._version
        if not 0 <= group < len(self._groups):
            return
        climb, graph = self.measured.climb, record.same(execution.graph)
        self.measured.executions += 1
        self._gone.discard(graph)
        self._ran[graph] = time.monotonic()
        timed = group == 0 or not self._timed_apart
        self._repeats[graph] += timed
        if self._repeats[graph] <= timed:
            return  # the first after a change of threads warms caches and workers
        self._count(record, execution, self._groups[group])
        if not timed:
            self._counted += 1
            return
        total = 0.0
        for _, key_id, threads, _, start, end, _ in execution.events:
            key = record.keys[key_id].key
            wanted = climb.wanted(key)
            # others are not under control: asynchronous, or can wait for another kernel
            if wanted is not None and threads == wanted[0]:
                climb.add(key, (end - start) * NANOSECOND)
                total += (end - start) * NANOSECOND
        climb.add_step(graph, total)

    def _count(self, record: Record, execution: Execution, group: Sequence[Event]) -> None:
        if self.measured.counting is None:
            return
        for index, *counted in execution.counts:
            _, key_id, threads, *_ = execution.events[int(index)]
            key = record.keys[key_id].key
            wanted = self.measured.climb.wanted(key)
            if wanted is not None and threads == wanted[0]:
                self.measured.counting.add(group, key, wanted, counted)

    def _case_is_over(self) -> bool:
        """Return True if every step that still runs has run the case often enough: as often as is
        allowed, or until the ops that make up most of the time have small spreads."""
        own, climb, repeats = self.measured.own, self.measured.climb, self._repeats
        if not any(repeats.values()):
            return False  # the job does something else now: validation, a checkpoint
        late = time.monotonic() - max(GONE * own.longest_wall, GONE_SECONDS)
        self._gone |= {graph for graph in repeats if self._ran_last(graph) <= late}
        if self._gone >= repeats.keys():
            return False
        least = min(n for graph, n in repeats.items() if graph not in self._gone) - 1
        wanted = LEAST_OF_RECEIVER if self._receives else LEAST_REPEATS
        timed_groups = 1 if self._timed_apart else len(self._groups)
        if least < max(min(wanted, self._cap), 2 * timed_groups):
            return False
        if self._timed_apart and self._counted < 2 * (len(self._groups) - 1):
            return least >= 2 * self._cap
        heavy = filter(climb.has_measured, own.heaviest(HEAVY_SHARE))
        return least >= self._cap or all(climb.spread(key) <= STEADY for key in heavy)

    def _gone_for(self) -> float | None:
        """Return the seconds without a step if they are so many that the job has left the step for
        good, as for its next model."""
        quiet = time.monotonic() - max(map(self._ran_last, self._repeats))
        cores = len(self.state.request.machine.cores)
        alone = GONE * cores * self.measured.own.longest_wall  # on one thread, at most
        return quiet if quiet > max(SEARCH_SECONDS, alone) else None

    def _ran_last(self, graph: int) -> float:
        """Return when the graph last ran, or when the present case began if that is later."""
        return max(self._began, self._ran.get(graph, 0.0))

    def _climbed(self) -> Phase:
        """Go on when all ops are measured: the next measurements concern no single op.

        Measure the cost of denormal numbers, if there are some; otherwise the cost of recording, as
        the remaining time can be too short for both.
        """
        self.measured.climbed = True
        self.state.save()
        if self.state.request.flushes():
            return DenormalCost(self.state)
        if self.measured.counting is not None:
            return RecordingCost(self.state, self._totals)
        return PythonSampling(self.state)


class _AfterClimb(_StepPhase):
    """A phase in which all ops are measured."""

    title: str

    def progress(self) -> Progress:
        return Progress(self.title, self.measured.executions)

    def _executed(self, record: Record, execution: Execution) -> Phase:
        if record.same(execution.graph) == self.measured.steps.targets[0]:
            for compared in (self.measured.cost, self.measured.flushing):
                if compared:
                    compared.add(execution)
        return self


class RecordingCost(_AfterClimb):
    """Cost of recording: steps under the job's own settings take turns with and without it, and
    without counters, like the steps that the job is known by."""

    title = "measuring the overhead of recording"

    def __init__(self, state: SessionState, totals: list[str]) -> None:
        """`totals`: the order for where all events of the climb happened, if it is given."""
        super().__init__(state)
        plain = state.new_versions(2)
        self._cost = self.measured.cost = Turns(plain, plain + 1)
        targets = self._targets()
        self._order(
            [
                *totals,
                *Orders(plain, targets).lines(),
                *Orders(plain + 1, targets, events=True).lines(),
                alternate_line((plain, plain + 1)),
            ]
        )

    def advance(self) -> Phase | Ended:
        if not self._cost.known:
            return self
        return PythonSampling(self.state).advance()


class DenormalCost(_AfterClimb):
    """Cost of denormal numbers: steps as they are, then steps that flush them to zero."""

    title = "measuring the cost of denormal numbers"

    def __init__(self, state: SessionState) -> None:
        super().__init__(state)
        base = state.new_versions(2)
        self._flushing = self.measured.flushing = Flushing(base, base + 1)
        self._order(Orders(base, targets=self._targets()).lines())

    def advance(self) -> Phase | Ended:
        if self._flushing.known:
            return PythonSampling(self.state).advance()
        if self._flushing.turns():
            flushed = Orders(self._flushing.flushed, targets=self._targets(), flush=True)
            self._order(flushed.lines())
        return self


class PythonSampling(_AfterClimb):
    """Samples of the process's Python between executions, while nothing else is measured."""

    title = "sampling Python"

    def __init__(self, state: SessionState) -> None:
        super().__init__(state)
        state.order_all(discover=False)
        assert state.profile is not None
        step = state.profile.steps[0]
        pause = between_looks(step.wall.median)
        self._lines = state.request.look(self.measured.steps.pid, pause)
        self.measured.lines = self._lines
        if python_matters(step):  # sampling takes time from the job
            self._lines.start()

    def advance(self) -> Phase | Ended:
        if not self._lines.poll():
            return self
        self.measured.lacks = self.state.request.lacks(self.measured.steps.pid)
        return Ended()
