"""Run a job with a plan enforced in each of its processes, and watch what comes of it."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from dltune.documents import opkey
from dltune.documents.machine import Machine
from dltune.documents.plan import Plan
from dltune.errors import DltuneError, UsageError
from dltune.job import messages
from dltune.job.diagnosis import Sightings, crash_of, hopeless, why_no_step
from dltune.job.launch import Job, Process
from dltune.job.orders import REPORT, Orders, alternate_line
from dltune.job.record import NANOSECOND, Record, main_graph, step_graphs
from dltune.job.unreported import require_all_reported
from dltune.run.enforce import Fitted, fit
from dltune.run.horovod import Ranks
from dltune.run.shares import Shares
from dltune.stats.samples import relative_spread

# how often a job is looked after whose step has not been seen
LOOK_SECONDS = 2.0
# how much op time a graph that does not train may take before it is taken for the job's step
UNTRAINED_SECONDS = 60.0
# one execution in so many is recorded op by op, to compare what was planned with what was met
RECORD_EVERY = 64
# executions of a job's main graph before a plan for other graphs is refused
PATIENCE = 4
LEAST_SHARE = 0.02
_DISCOVER, _PLAIN, _RECORDED = 1, 2, 3


@dataclass(frozen=True)
class Outcome:
    """What came of a run in one process. Times are seconds.

    `met` and `unmet` are keys of the plan that the job did and did not run; `overhead` is the
    share of a step's wall time spent in dltune's own bookkeeping (None: never recorded).
    `overridden` is the (intra, inter) that the script asked for and did not get (0: not asked).
    """

    pid: int
    rank: int | None
    steps: int
    median: float
    spread: float
    met: tuple[str, ...]
    unmet: tuple[str, ...]
    overhead: float | None
    overridden: tuple[int, int]
    in_flight: float
    avoided: tuple[tuple[str, str], ...]


@dataclass
class _Enforced:
    """One process of the job under the plan."""

    process: Process
    fitted: Fitted
    rank: int | None
    record: Record
    targets: tuple[str, ...] = ()
    starts: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    overheads: list[float] = field(default_factory=list)


class Session:
    """Enforces one plan on one job. With `partial`, what still applies of a plan for another
    machine or graph. `ranks`: those of a plan with a section on Horovod."""

    def __init__(
        self,
        plan: Plan,
        machine: Machine,
        *,
        partial: bool,
        say: Callable[[str], None],
        ranks: Ranks | None = None,
    ) -> None:
        self.plan = plan
        self.partial = partial
        self.say = say
        self.ranks = ranks
        self.seen = Sightings()
        self._enforced: dict[int, _Enforced] = {}
        self._looked = time.monotonic()
        self._shares = Shares(machine)

    def answer(self, python: messages.Python) -> dict[str, object]:
        """Give a rank of a launcher its part of the node's cores."""
        return self.ranks.answer(python) if self.ranks else self._shares.answer(python)

    def greet(self, process: Process) -> list[str]:
        """First orders of a process: TensorFlow's own pools; the rest once its step is known."""
        shares = self.ranks.shares if self.ranks else self._shares
        machine, rank = shares.of(process.pid)
        record = Record(process.hello)
        fitted = fit(self.plan, machine, self.ranks.section.threads if self.ranks else None)
        self.seen.records[process.pid] = record
        self._enforced[process.pid] = _Enforced(process, fitted, rank, record)
        return [*fitted.first_lines(), *Orders(_DISCOVER, discover=True).lines()]

    def run(self, job: Job) -> list[Outcome]:
        """Until the job ends. Raises a DltuneError when the plan could not be enforced."""
        for event in job.events(1.0):
            self._look_after(job)
            if self.ranks:
                self.ranks.look()
            if event is None:
                continue
            self.seen.add(event.message)
            if self.ranks:
                self.ranks.hear(job, event)
            if event.process is None:
                if isinstance(event.message, messages.Building):
                    self.say(f"building the plugin for TensorFlow {event.message.version}, once")
                elif isinstance(event.message, messages.Failed):
                    # the job would run plain: that must not pass for a run with the plan
                    raise why_no_step(self.seen, None)
                continue
            self._hear(self._enforced[event.process.pid], event.message)
        if crash := crash_of(self.seen, job.exit_code):
            raise crash
        outcomes = [o for o in map(self._outcome, self._enforced.values()) if o is not None]
        if not outcomes:
            raise self._why_nothing(job)
        return outcomes

    def _look_after(self, job: Job) -> None:
        """Until the plan is enforced somewhere: make sure that the job does not run without it."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS or job.exit_code is not None:
            return
        self._looked = now
        if any(mine.targets for mine in self._enforced.values()):
            return
        if error := hopeless(self.seen):
            raise error
        require_all_reported(job.pid, {python.pid for python in self.seen.pythons})
        for mine in self._enforced.values():
            mine.process.order([REPORT])

    def _why_nothing(self, job: Job) -> DltuneError:
        error = why_no_step(self.seen, job.exit_code)
        if job.exit_code == 0 and any(r.graphs for r in self.seen.records.values()):
            return UsageError(
                f"the job ended before a step of the plan had run: {error}",
                remedy="profile the job as it is now and plan again",
            )
        return error

    def _hear(self, mine: _Enforced, message: messages.Message) -> None:
        if not isinstance(message, messages.Execution):
            mine.record.add(message)
            if isinstance(message, messages.Graph) and message.signature in self.plan.signatures:
                self._enforce(mine, tuple(self.plan.signatures))
            return
        if not mine.record.understands(message):
            return
        if message.version == _DISCOVER and not mine.targets:
            mine.record.add(message)
            self._look_for_step(mine)
        if mine.record.graphs[message.graph].signature in mine.targets:
            mine.starts[message.graph].append(message.start)
            if message.version == _RECORDED and message.events:
                mine.overheads.append(message.overhead * NANOSECOND)

    def _look_for_step(self, mine: _Enforced) -> None:
        main = main_graph(mine.record)
        if main is None or mine.record.runs[main] < PATIENCE:
            return
        if not mine.record.trains(main) and mine.record.seconds[main] < UNTRAINED_SECONDS:
            return  # preparation and validation may come before the step
        if not self.partial and not self._changed_by_plan(mine):
            raise UsageError(
                f"the plan was made for other graphs ({', '.join(self.plan.signatures)}); "
                f"this job's step is {mine.record.graphs[main].signature}",
                remedy="profile the job as it is now (with --plan when the plan has settings) and "
                "plan again, or pass --partial to run what still applies",
            )
        found = step_graphs(mine.record, LEAST_SHARE)
        self._enforce(mine, tuple(mine.record.graphs[g].signature for g in found))

    def _changed_by_plan(self, mine: _Enforced) -> str:
        """By what of itself the plan has changed the step's graph since the profile; empty: by
        nothing."""
        if self.ranks is not None and self.ranks.binned(mine.process.pid):
            return "with its bins"
        return "under its settings" if self.plan.for_any_graph else ""

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
        planned = targets == tuple(self.plan.signatures)
        if planned:
            other = ""
        elif change := self._changed_by_plan(mine):
            other = f", in the step's graph {change}"
        else:
            other = f", as far as it applies to other graphs ({', '.join(targets)})"
        self.say(f"{who}: the plan is enforced from here on{other}")

    def _outcome(self, mine: _Enforced) -> Outcome | None:
        walls = [
            (b - a) * NANOSECOND
            for starts in mine.starts.values()
            for a, b in itertools.pairwise(starts)
        ]
        if not walls:
            return None
        planned = [op.key for op in mine.fitted.section.ops]
        ran = {key.key for key in mine.record.keys.values()}
        for graph in map(mine.record.graphs.__getitem__, mine.record.executions):
            ran.update(opkey.of_node(graph.signature, node.name) for node in graph.nodes)
        device = mine.record.settings()
        report = mine.record.report
        median = statistics.median(walls)
        return Outcome(
            pid=mine.process.pid,
            rank=mine.rank,
            steps=sum(map(len, mine.starts.values())),
            median=median,
            spread=relative_spread(walls),
            met=tuple(key for key in planned if key in ran and key not in mine.fitted.dropped),
            unmet=tuple(key for key in planned if key not in ran or key in mine.fitted.dropped),
            overhead=statistics.median(mine.overheads) / median if mine.overheads else None,
            overridden=(device.asked_intra, device.asked_inter) if device else (0, 0),
            in_flight=report.gate.in_flight if report else 0.0,
            avoided=tuple(report.gate.avoided) if report else (),
        )
