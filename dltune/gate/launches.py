"""Two TensorFlow jobs take turns: the step, its ops, and the costs of a step.

The processes of a launch are started together and wait at the step barrier unless they have their
turn, as in a bench. A process keeps the layout of its start (the place of its memory, the cache
lines that meet). Two launches therefore differ by more than the rounds of a launch: a few rounds
make a launch, and many launches a verdict (docs/explanation/decisions/gate-launches.md).
"""

from __future__ import annotations

import contextlib
import fnmatch
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dltune.base.errors import DltuneError, UsageError
from dltune.bench.contestants import Setting
from dltune.bench.runner import Runner
from dltune.gate.checkouts import Side, blame
from dltune.gate.limits import OPS
from dltune.job import protocol
from dltune.job.protocol import Orders
from dltune.job.record import NANOSECOND, Record
from dltune.plan.plan import new_plan
from dltune.schemas.machine import Machine
from dltune.stats import quantiles
from dltune.turns.barrier import JobEndedError, TurnError
from dltune.turns.rounds import Progress, Rounds, RunningJobs, explained
from dltune.watch.stack_samples import Looks, Stack

# seconds of turns in a launch, about as long as its two jobs need to start
ENOUGH = 6.0
# executions in which ops are recorded, after each round; the first obeys the orders before
RECORDED = 4
LOOKS_A_SECOND = 50
PLAIN, RECORDING = 1, 2
SHORT = "let the job train for more steps, or reduce rounds_per_launch or seconds_per_turn"


@dataclass
class Seen:
    """Observations within the steps of one side's process: `executions` of each step graph whose
    ops were recorded, the main graph's first, with the names of graphs and keys, and Python's
    `stacks` while the rounds went on."""

    graphs: dict[int, protocol.Graph]
    keys: dict[int, protocol.Key]
    executions: dict[int, list[protocol.Execution]]
    pid: int
    stacks: list[Stack]
    why_no_stacks: str | None


@dataclass
class Launch:
    """Results of a launch of all sides: side -> the steps of each round in seconds, metric -> side
    -> the median over the rounds, and side -> observations within its steps, if requested."""

    steps: dict[str, list[tuple[float, ...]]] = field(default_factory=dict)
    values: dict[str, dict[str, float]] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)


def launch(
    sides: Sequence[Side],
    signatures: Mapping[str, tuple[str, ...]],
    machine: Machine,
    *,
    rounds: int,
    seconds: float,
    patience: float,
    wanted: Collection[str],
    tell: Callable[[str], None],
    watch: Callable[[], Callable[[], bool]] = lambda: lambda: False,
    looking: bool = False,
) -> Launch:
    """Start a job for each side, let them take turns for `rounds` of `seconds` each, end them.

    `signatures`: of each side's step graphs, the main graph's first. `patience`: seconds for which
    a job can send no message before its first step. `wanted`: names of metrics; the allocator's
    peak and the ops of a pattern are measured only if they are among them. `watch`: as for
    `Rounds`. `looking`: True to observe the steps from inside.
    Raises UsageError, which names the side, when a job ends too early.
    """
    patterns = [name.removeprefix(OPS) for name in wanted if name.startswith(OPS)]
    observers = [
        _Observer(side, signatures[side.name], machine, "peak_bytes" in wanted, patterns, looking)
        for side in sides
    ]

    def after_round() -> None:
        if (patterns or looking) and series.fault is None and series.turns[sides[0].name]:
            for observer in observers:
                observer.record_ops(series)

    series = Rounds(
        observers,
        rounds=rounds,
        seconds=seconds,
        patience=patience,
        enough=ENOUGH,
        tell=lambda told: tell(_phase(told, series.rounds)),
        keep=after_round,
        watch=watch,
    )
    with (
        RunningJobs("dltune-gate-log-", temporary=sides[0].temporary) as jobs,
        contextlib.ExitStack() as looks,
    ):
        for observer in observers:
            side = observer.side
            jobs.start(observer, side.command, side.environment, side.folder)
            looks.callback(observer.end_looks)
        try:
            series.run()
        except DltuneError:
            if series.fault is None:
                raise
        if series.fault:
            raise _blamed(series.fault)
        made = _gathered(series, observers)
        for observer in observers if looking else ():
            if seen := observer.seen():
                made.seen[observer.side.name] = seen
    return made


class _Observer(Runner):
    """One side's job, and the observations of it in addition to its steps."""

    def __init__(
        self,
        side: Side,
        signatures: tuple[str, ...],
        machine: Machine,
        peak: bool,
        patterns: Sequence[str],
        looking: bool,
    ) -> None:
        orders = Orders(PLAIN, targets=signatures, barrier=True)
        kind = _Counting if peak else Setting
        super().__init__(
            kind(side.name, None, orders),
            machine,
            # nothing was planned for the job: the plan holds only its step graphs
            new_plan(machine, signatures=signatures),
            self._observe,
        )
        self.side = side
        self._patterns = patterns
        self._looking = looking
        self._looks: Looks | None = None
        self._record: Record | None = None
        self._recording = False  # its turn goes on
        self._executions: dict[int, list[protocol.Execution]] = defaultdict(list)
        self.peak = 0
        self.ops: dict[str, list[float]] = defaultdict(list)  # pattern -> seconds of an execution

    @property
    def startup(self) -> list[float]:
        """Seconds until the job waited before its first step; without the time at the barrier."""
        return [] if self.stood is None else [self.stood * NANOSECOND - self.began]

    def _observe(self, record: Record, execution: protocol.Execution) -> None:
        self.peak = max(self.peak, execution.peak)
        signature = record.graphs[execution.graph].signature
        # an execution that was granted in the next turn obeys these orders, too
        if execution.version != RECORDING or not self._recording:
            return
        if self._looking and record.understands(execution):
            self._record = record
            self._executions[record.same(execution.graph)].append(execution)
        if signature != self._signatures[0]:
            return
        for pattern in self._patterns:
            self.ops[pattern].append(
                sum(
                    (end - start) * NANOSECOND
                    for _, key, threads, _, start, end, _ in execution.events
                    if threads >= 0 and _matches(record.keys[key], pattern)
                )
            )

    def record_ops(self, series: Rounds[_Observer]) -> None:
        """Run a short turn in which every op is recorded; its steps are in no step time. The first
        such turn, after a round, also starts the sampling of Python."""
        if self._looking and self._looks is None and self.lead is not None:
            self._looks = Looks(self.lead, LOOKS_A_SECOND)
        orders = Orders(RECORDING, targets=self._signatures, barrier=True, events=True)
        self.order(orders.lines())
        self._recording = True
        series.take(self, (RECORDED + 1) * len(self._signatures))
        self._recording = False
        self.order(Orders(PLAIN, targets=self._signatures, barrier=True).lines())

    def seen(self) -> Seen | None:
        """Return the observations within the steps while the job still waits; None: nothing."""
        record, looks = self._record, self._looks
        if record is None or looks is None:
            return None
        stacks = self.end_looks()
        ordered = sorted(
            self._executions.items(),
            key=lambda one: self._signatures.index(record.graphs[one[0]].signature),
        )
        return Seen(record.graphs, record.keys, dict(ordered), looks.pid, stacks, looks.why)

    def end_looks(self) -> list[Stack]:
        looks, self._looks = self._looks, None
        return looks.end() if looks else []


class _Counting(Setting):
    """The job's own settings, with the allocator's bytes counted."""

    def lines(self) -> list[str]:
        return ["count\t1", *super().lines()]


def _matches(key: protocol.Key, pattern: str) -> bool:
    return fnmatch.fnmatchcase(key.op, pattern) or fnmatch.fnmatchcase(key.key, pattern)


def quartile(steps: Sequence[float]) -> float:
    """Return the lower quartile: the time of an undisturbed step.

    Between launches of the same code it varies far less than the median, because other work on the
    machine only ever adds (docs/explanation/decisions/gate-launches.md).
    """
    return quantiles(steps, (0.25,))[0]


def _gathered(rounds: Rounds[_Observer], observers: Sequence[_Observer]) -> Launch:
    made = Launch()
    for observer in observers:
        name = observer.side.name
        turns = rounds.turns[name]
        if not turns:
            raise UsageError(
                f"no step of the job in {observer.side.title} could be timed",
                remedy="let the job train for more steps",
            )
        made.steps[name] = [turn.steps for turn in turns]
        steps = [step for turn in turns for step in turn.steps]
        values = {
            "step_time": [quartile(steps)],
            "step_mean": [sum(steps) / len(steps)],
            "step_cpu": [statistics.fmean(turn.cpu_seconds for turn in turns)],
            "context_switches": [turn.voluntary + turn.involuntary for turn in turns],
            "page_faults": [turn.faults for turn in turns if turn.faults is not None],
            "startup": observer.startup,
            "peak_bytes": [float(observer.peak)] if observer.peak else [],
            **{OPS + pattern: seconds for pattern, seconds in observer.ops.items()},
        }
        for metric, found in values.items():
            if found:
                made.values.setdefault(metric, {})[name] = statistics.median(found)
    return made


def _blamed(fault: TurnError) -> UsageError:
    """Return the error of the side whose job failed."""
    observer = fault.job
    assert isinstance(observer, _Observer)
    if not isinstance(fault, JobEndedError):
        return blame(observer.side, str(explained(fault)), observer.log)
    code = observer.exit_code
    what = f"the job ended with exit code {code} before it was measured"
    return blame(observer.side, what, observer.log, remedy=None if code else SHORT)


def _phase(told: Progress, rounds: int) -> str:
    return f"round {told.round} of {rounds}: {told.phase}" if told.round else told.phase
