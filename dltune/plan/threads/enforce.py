"""Enforcement of the planned threads of ops in each process of a job, and its outcome."""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dltune.base.errors import UsageError
from dltune.base.formatting import Table
from dltune.job import protocol
from dltune.job.failures import crash_of, why_no_step
from dltune.job.launch import Event, Job, Process
from dltune.job.protocol import Orders, alternate_line
from dltune.job.record import NANOSECOND, Record, main_graph, pauses, step_graphs
from dltune.plan.planner import Attachment, Enforcement, Outcome, Run
from dltune.plan.threads.fitted import Fitted, fit
from dltune.plan.threads.show import (
    RECORD_EVERY,
    ProcessOutcome,
    intent,
    sentences,
)
from dltune.schemas.graph import of_node
from dltune.schemas.plan import Threads
from dltune.schemas.profile import LOCAL, job, task
from dltune.stats import relative_spread

# op time after which a graph that does not train is regarded as the job's step
UNTRAINED_SECONDS = 60.0
# executions of a job's main graph before a plan for other graphs is refused
PATIENCE = 4
LEAST_SHARE = 0.02
# the newest executions of a graph that are kept for the step time: a job can run for weeks
LATEST = 1 << 16
_DISCOVER, _PLAIN, _RECORDED = 1, 2, 3


@dataclass
class _Enforced:
    """One process of the job under the plan."""

    process: Process
    fitted: Fitted
    rank: int | None
    record: Record
    targets: tuple[str, ...] = ()
    other: str | None = None  # its task, if the plan is for other tasks
    steps: int = 0
    starts: dict[int, deque[int]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=LATEST))
    )
    overheads: deque[float] = field(default_factory=lambda: deque(maxlen=LATEST))


class EnforcedThreads(Enforcement):
    """Section on threads in one job; with `partial`, its parts that still apply to another machine
    or graph."""

    inside = True
    orders_recording = True

    def __init__(self, section: Threads, run: Run) -> None:
        self.section = section
        self._run = run
        self._attachment = Attachment()
        self._enforced: dict[int, _Enforced] = {}
        if run.pools is None:
            run.pools = lambda machine, _: fit(section, machine).uniform

    def intent(self) -> Iterator[str | Table]:
        assert self._run.pools is not None
        uniform = self._run.pools(self._run.machine, None)
        assert uniform is not None  # this section decides the pools if no other does
        return intent(fit(self.section, self._run.machine), uniform, self._run.plan.signatures)

    def answer(self, python: protocol.Python) -> Mapping[str, object]:
        """Give a rank of a launcher its part of the node's cores."""
        return self._run.shares.answer(python)

    def greet(self, process: Process) -> Sequence[str]:
        """Return the order to report graphs; the others follow once the step is found."""
        machine, rank = self._run.shares.of(process.pid)
        record = self._attachment.greet(process)
        fitted = fit(self.section, machine)
        self._enforced[process.pid] = _Enforced(process, fitted, rank, record)
        return Orders(_DISCOVER, discover=True).lines()

    def look(self, job: Job) -> None:
        """Raises DltuneError when the job runs without the plan."""
        if not any(mine.targets or mine.other for mine in self._enforced.values()):
            self._attachment.look(job)

    def hear(self, job: Job, event: Event) -> None:
        """Raises DltuneError when the plan could not be enforced."""
        self._attachment.hear(event)
        if event.process is not None:
            self._hear(self._enforced[event.process.pid], event.message)

    def ended(self, exit_code: int) -> Outcome:
        if crash := crash_of(self._attachment.seen, exit_code):
            raise crash
        outcomes = [o for o in map(self._outcome, self._enforced.values()) if o is not None]
        if not outcomes and not any(mine.other for mine in self._enforced.values()):
            why = why_no_step(self._attachment.seen, exit_code)
            raise self._attachment.why_nothing(
                exit_code, f"the job ended before it ran a step of the plan: {why}"
            )
        return Outcome(outcomes, [s for one in outcomes for s in sentences(one, self.section)])

    def _hear(self, mine: _Enforced, message: protocol.Message) -> None:
        if not isinstance(message, protocol.Execution):
            mine.record.add(message)
            signatures = self._run.plan.signatures
            if isinstance(message, protocol.Graph) and message.signature in signatures:
                self._enforce(mine, signatures)
            return
        if not mine.record.understands(message):
            return
        if message.version == _DISCOVER and not mine.targets and mine.other is None:
            mine.record.add(message)
            self._look_for_step(mine)
        if mine.record.graphs[message.graph].signature in mine.targets:
            mine.steps += 1
            mine.starts[message.graph].append(message.start)
            if message.version == _RECORDED and message.events:
                mine.overheads.append(message.overhead * NANOSECOND)

    def _look_for_step(self, mine: _Enforced) -> None:
        main = main_graph(mine.record)
        if main is None or mine.record.runs[main] < PATIENCE:
            return
        if not mine.record.trains(main) and mine.record.seconds[main] < UNTRAINED_SECONDS:
            return  # preparation and validation can come before the step
        if self._is_of_another_task(mine, mine.record.graphs[main]):
            return
        planned, here = self._run.plan.framework, mine.record.framework()
        if planned and planned.name != here.name:
            raise UsageError(
                f"the plan is for {planned.title}, but pid {mine.process.pid} trains with "
                f"{here.title}",
                remedy="profile this job and plan again",
            )
        if not self._run.partial and not self._run.changed(mine.process.pid):
            raise UsageError(
                f"the plan was made for other graphs ({', '.join(self._run.plan.signatures)}); "
                f"this job's step is {mine.record.graphs[main].signature}",
                remedy="profile the job as it is now (with --plan if the plan has settings) and "
                "plan again, or pass --partial to enforce only what still applies",
            )
        found = step_graphs(mine.record, LEAST_SHARE)
        self._enforce(mine, tuple(mine.record.graphs[g].signature for g in found))

    def _is_of_another_task(self, mine: _Enforced, graph: protocol.Graph) -> bool:
        """Return True if the process has another task than the plan is for, such as a parameter
        server."""
        here, planned = task(graph.device), self._run.plan.tasks
        if self._run.partial or not planned or here in planned or job(here) in ("", LOCAL):
            return False
        if mine.other is None:
            mine.other = here
            mine.process.order(Orders(_PLAIN).lines())
            self._run.say(
                f"pid {mine.process.pid} runs the task {here}, but the plan's threads are for "
                f"{', '.join(planned)}: its ops are not changed"
            )
        return True

    def _enforce(self, mine: _Enforced, targets: tuple[str, ...]) -> None:
        if mine.targets:
            return
        mine.targets = targets
        turns = [_PLAIN] * (RECORD_EVERY - 1) + [_RECORDED]
        mine.process.order(
            [
                *mine.fitted.orders(_PLAIN, targets).lines(),
                *mine.fitted.orders(_RECORDED, targets, events=True).lines(),
                alternate_line(turns[RECORD_EVERY // 8 :] + turns[: RECORD_EVERY // 8]),
            ]
        )
        who = f"rank {mine.rank}" if mine.rank is not None else f"pid {mine.process.pid}"
        if targets == self._run.plan.signatures:
            other = ""
        elif change := self._run.changed(mine.process.pid):
            other = f", in the step's graph {change}"
        else:
            other = f", as far as it applies to other graphs ({', '.join(targets)})"
        self._run.say(f"{who}: the plan is in force from now on{other}")

    def _outcome(self, mine: _Enforced) -> ProcessOutcome | None:
        found = pauses(mine.starts.values())
        if not found:
            return None
        planned = [op.key for op in mine.fitted.section.ops]
        ran = {key.key for key in mine.record.keys.values()}
        for graph in map(mine.record.graphs.__getitem__, mine.record.executions):
            ran.update(of_node(graph.signature, node.name) for node in graph.nodes)
        device = mine.record.settings()
        report = mine.record.report
        median = statistics.median(found)
        return ProcessOutcome(
            pid=mine.process.pid,
            rank=mine.rank,
            steps=mine.steps,
            median=median,
            spread=relative_spread(found),
            met=tuple(key for key in planned if key in ran and key not in mine.fitted.dropped),
            unmet=tuple(key for key in planned if key not in ran or key in mine.fitted.dropped),
            overhead=statistics.median(mine.overheads) / median if mine.overheads else None,
            overridden=(device.asked_intra, device.asked_inter) if device else (0, 0),
            in_flight=report.admission.in_flight if report else 0.0,
            avoided=tuple(report.admission.avoided) if report else (),
        )
