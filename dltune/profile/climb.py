"""Measurements that a job makes under changing orders, for the profile.

`Climb` finds the best thread count of each op. `Counting` collects the performance counters that
are read around ops while the climb goes on. `Turns` and `Flushing` compare the step times of two
sets of orders.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dltune.job import protocol
from dltune.job.record import NANOSECOND
from dltune.schemas import profile
from dltune.schemas.profile import Placement, Ratio
from dltune.stats import paired_ratio, relative_spread, unpaired_ratio
from dltune.system.perf.events import Event

Case = tuple[int, Placement]
# An op stops once this many thread counts in a row were slower than its best. The paper stops at
# the first. Near its best an op's curve is flat, so one unlucky sample would then end the climb:
# with 2 % noise on 68 cores (X = 4), 80 % of ops end within 2 % of their best, and 91 % with two.
PATIENCE = 2


class Climb:
    """State of hill climbing over intra-op threads (the paper, section III-C), for all ops at once.

    All ops still climbing run at the same case in a step, as in the paper: one thread first, then
    up the ladder of thread counts, each count in every placement it has, while an op's time falls.
    An op that stops keeps its best case from then on, except at the count of all cores: every op is
    measured there, as TensorFlow's recommended setting runs it there.

    The class uses no job and no clock.

    `cases` are all (threads, placement) in the order they are tried: rising thread counts, the
    placements of a count one after the other. `patience` is PATIENCE, or 1 for the paper's rule.
    """

    def __init__(self, cases: Sequence[Case], patience: int = PATIENCE) -> None:
        self.cases = tuple(cases)
        self._all_cores = max(count for count, _ in cases)
        self._patience = patience
        self._position = 0
        self._samples: dict[str, dict[Case, list[float]]] = {}
        self._stopped: dict[str, Case] = {}
        self._steps: dict[int, dict[Case, list[float]]] = {}

    @property
    def case(self) -> Case | None:
        """The case to run now; None when the climb is over."""
        if self._position >= len(self.cases):
            return None
        return self.cases[self._position]

    @property
    def cases_left(self) -> int:
        """Cases still to run if nothing stops before the top of the ladder."""
        return len(self.cases) - self._position

    @property
    def climbing(self) -> int:
        """The number of ops that have not found their best yet."""
        return len(self._samples) - len(self._stopped)

    def wanted(self, key: str) -> Case | None:
        """Return the case in which `key` runs now: the climb's, or its best once it has stopped."""
        return self.held().get(key, self.case)

    def held(self) -> dict[str, Case]:
        """Return the ops that do not run in the climb's present case, with the case of each."""
        at_the_top = self.case is not None and self.case[0] == self._all_cores
        return {} if at_the_top else self._stopped

    def add(self, key: str, seconds: float) -> None:
        """Add a measurement of `key` at the case in which it is `wanted`."""
        case = self.wanted(key)
        assert case is not None, "the climb is over"
        self._samples.setdefault(key, {}).setdefault(case, []).append(seconds)

    def add_step(self, graph: int, seconds: float) -> None:
        """Add the time of all ops of an execution of `graph`, if all run in the present case."""
        if self.case is not None and not self.held():
            self._steps.setdefault(graph, {}).setdefault(self.case, []).append(seconds)

    def has_measured(self, key: str) -> bool:
        """Return True if `key` was measured at any case. Ops not under control never are."""
        return key in self._samples

    def spread(self, key: str) -> float:
        """Return the spread of `key`'s samples at its case; infinite below three samples."""
        case = self.wanted(key)
        samples = self._samples.get(key, {}).get(case, []) if case else []
        return relative_spread(samples) if len(samples) >= 3 else float("inf")

    def advance(self) -> None:
        """End the present case. At the end of a thread count, ops that got slower stop."""
        assert self.case is not None, "the climb is over"
        count = self.case[0]
        self._position += 1
        if self.case is not None and self.case[0] == count:
            return
        for key, cases in self._samples.items():
            if key in self._stopped:
                continue
            # the fastest, and the first among equals
            best = min(cases, key=lambda case: (statistics.median(cases[case]), case[0]))
            slower = sum(best[0] < n <= count for n in {n for n, _ in cases})
            if slower >= self._patience:
                self._stopped[key] = best
        if self._samples and self.climbing == 0 and self.case is not None:
            # nothing to gain between here and the count of all cores
            self._position = [count for count, _ in self.cases].index(self._all_cores)

    def samples(self) -> Iterator[tuple[str, Case, list[float]]]:
        """Yield all measurements: (key, case, seconds)."""
        for key, cases in self._samples.items():
            for case, seconds in cases.items():
                yield key, case, seconds

    def steps(self, graph: int) -> Iterator[tuple[Case, list[float]]]:
        """Yield the seconds that executions of `graph` spent in ops, by case."""
        yield from self._steps.get(graph, {}).items()


# Performance counters around ops

# events that the kernel also accounts for by thread and process, and where
_ACCOUNTED: Mapping[str, Callable[[Sequence[int]], float]] = {
    "minor-faults": lambda used: used[0],
    "major-faults": lambda used: used[1],
    "page-faults": lambda used: used[0] + used[1],
    "context-switches": lambda used: used[2] + used[3],
    "task-clock": lambda used: used[4] * NANOSECOND,
}


@dataclass(frozen=True)
class Choice:
    """Events to count: `groups` of events that are counted together, each under separate orders.

    `asked` is the user's word for these, `why` a sentence on the events that could be counted here,
    `fault_seconds` the cost of a page fault here.
    """

    asked: str
    why: str
    groups: tuple[tuple[Event, ...], ...]
    fault_seconds: float | None = None


class Counting:
    """Performance counters by op key and case, read around ops while the climb goes on."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.overhead: profile.Ratio | None = None
        # by key, case and event: running share and value of each run
        self._runs: dict[tuple[str, Case, str], list[tuple[float, float]]] = defaultdict(list)
        self._accounts: list[protocol.Totals] = []

    def add(self, group: Sequence[Event], key: str, case: Case, counted: Sequence[float]) -> None:
        """Add one run of an op: its running share, then a value for each event of the group."""
        running, *values = counted
        for event, value in zip(group, values, strict=True):
            self._runs[key, case, event.name].append((running, value * _unit(event)))

    def counts(self, key: str, case: Case) -> tuple[profile.Count, ...]:
        """Return the counts of a run of `key` at `case`; empty when it was not counted there."""
        return tuple(
            profile.Count(
                event=event.name,
                value=statistics.fmean(value for _, value in runs),
                spread=relative_spread([value for _, value in runs]),
                samples=len(runs),
                running=min(running for running, _ in runs),
            )
            for group in self.choice.groups
            for event in group
            if (runs := self._runs.get((key, case, event.name)))
        )

    def account(self, totals: protocol.Totals) -> None:
        """Add the job's totals until now; the first call begins the interval."""
        self._accounts.append(totals)

    def totals(self) -> tuple[profile.Total, ...]:
        """Return where the events of the interval happened. Empty unless all events were counted
        all the time, and for events that the kernel does not also account for by thread."""
        if len(self._accounts) < 2 or len(self.choice.groups) != 1:
            return ()
        began, ended = self._accounts[0], self._accounts[-1]
        before = {thread.tid: _used(thread) for thread in began.threads}
        in_ops = ended.ops[0] if ended.ops else [0.0] * len(self.choice.groups[0])
        in_ops_before = began.ops[0] if began.ops else [0.0] * len(in_ops)
        found = []
        for index, event in enumerate(self.choice.groups[0]):
            read = _ACCOUNTED.get(event.name)
            if read is None:
                continue
            ops = (in_ops[index] - in_ops_before[index]) * _unit(event)
            counted = others = 0.0
            for thread in ended.threads:
                used = read(_used(thread)) - read(before.get(thread.tid, (0,) * 5))
                if thread.counted:
                    counted += used
                else:
                    others += used
            found.append(
                profile.Total(
                    event=event.name,
                    ops=ops,
                    gaps=counted - ops,
                    others=others,
                    process=read(ended.process) - read(began.process),
                )
            )
        return tuple(found)

    def document(self) -> profile.Counters:
        return profile.Counters(
            asked=self.choice.asked,
            why=self.choice.why,
            groups=tuple(tuple(event.name for event in group) for group in self.choice.groups),
            totals=self.totals(),
            overhead=self.overhead,
            fault_seconds=self.choice.fault_seconds,
        )


def _unit(event: Event) -> float:
    """Return the unit of one count: clocks count nanoseconds and are reported in seconds."""
    return NANOSECOND if profile.is_clock(event.name) else 1.0


def _used(thread: protocol.Thread) -> tuple[int, ...]:
    return (thread.minor, thread.major, thread.voluntary, thread.involuntary, thread.cpu)


# Comparisons of steps under two sets of orders

# pairs of steps to compare: at most, at least, and the seconds after which the least is enough
PAIRS, LEAST_PAIRS, PAIRS_SECONDS = 10, 3, 20.0
# without one more pair, or without an end of `Flushing`, in this time, the job does something else
GIVE_UP_SECONDS = 60.0


class Turns:
    """Comparison of steps that take turns between the orders `base` and `other`. Neighbours are
    compared in pairs, so that the machine's drift affects both."""

    def __init__(self, base: int, other: int) -> None:
        self._versions = {base: 0, other: 1}
        self._began = time.monotonic()
        self._executions: list[tuple[int, int, int]] = []  # number, version, start

    def add(self, execution: protocol.Execution) -> None:
        """Add an execution of the step's main graph."""
        if execution.version in self._versions:
            kind = self._versions[execution.version]
            self._executions.append((execution.number, kind, execution.start))

    @property
    def known(self) -> bool:
        """True if there are enough pairs, or the wait for more is over."""
        pairs, waited = len(self._pairs()), time.monotonic() - self._began
        enough = pairs >= PAIRS or (pairs >= LEAST_PAIRS and waited >= PAIRS_SECONDS)
        return enough or waited >= GIVE_UP_SECONDS

    def ratio(self) -> Ratio | None:
        """Return the ratio of step times, `other` to `base`; None with too few pairs."""
        pairs = self._pairs()
        if len(pairs) < LEAST_PAIRS:
            return None
        found = paired_ratio(pairs)
        return Ratio(pairs=found.rounds, low=found.low, median=found.median, high=found.high)

    def _pairs(self) -> list[tuple[float, float]]:
        """Return pairs (other, base) of neighbours' wall times; the first two steps warm up."""
        walls = [
            (kind, following - start)
            for (number, kind, start), (next_number, _, following) in pairwise(self._executions[2:])
            if next_number == number + 1
        ]
        pairs: list[tuple[float, float]] = []
        for (kind, wall), (other, following) in zip(walls[::2], walls[1::2], strict=False):
            if kind != other and wall > 0 and following > 0:
                pairs.append((wall, following) if kind else (following, wall))
        return pairs


# each part lasts for STEPS and LEAST_SECONDS, or for LEAST_STEPS and LONG seconds
STEPS, LEAST_SECONDS = 20, 1.0
LEAST_STEPS, LONG = 5, 10.0


class Flushing:
    """Cost of denormal numbers: steps without a change, then steps that flush denormals to zero.

    Executions run under the orders `base` first, then under `flushed`. They do not take turns: a
    state whose denormal numbers were flushed once has none from then on.
    """

    def __init__(self, base: int, flushed: int) -> None:
        self.base, self.flushed = base, flushed
        self._began = time.monotonic()
        self._turned = False
        self._starts: dict[int, list[int]] = {base: [], flushed: []}

    def add(self, execution: protocol.Execution) -> None:
        """Add an execution of the step's main graph."""
        if execution.version in self._starts:
            self._starts[execution.version].append(execution.start)

    def turns(self) -> bool:
        """Return True once: when there are enough steps under `base`, and `flushed` is due."""
        turns = not self._turned and self._enough(self.base)
        self._turned = self._turned or turns
        return turns

    @property
    def known(self) -> bool:
        """True if there are enough steps under both orders, or the wait for more is over."""
        return self._enough(self.flushed) or time.monotonic() - self._began >= GIVE_UP_SECONDS

    def ratio(self) -> Ratio | None:
        """Return the ratio of step times, with denormal numbers flushed to zero to without; None
        with too few steps of either kind."""
        if not self._enough(self.flushed):
            return None
        base, flushed = self._walls(self.base), self._walls(self.flushed)
        found = unpaired_ratio(base, flushed)
        return Ratio(
            pairs=min(len(base), len(flushed)), low=found.low, median=found.median, high=found.high
        )

    def _enough(self, version: int) -> bool:
        starts = self._starts[version]
        steps = len(starts) - 2  # the first warms up
        seconds = (starts[-1] - starts[1]) * 1e-9 if steps > 0 else 0.0
        return (steps >= STEPS and seconds >= LEAST_SECONDS) or (
            steps >= LEAST_STEPS and seconds >= LONG
        )

    def _walls(self, version: int) -> list[float]:
        """Return the mean nanoseconds of a step, for each of at most STEPS parts of the steps."""
        starts = self._starts[version][1:]
        parts = min(STEPS, len(starts) - 1)
        ends = [round(part * (len(starts) - 1) / parts) for part in range(parts + 1)]
        return [(starts[to] - starts[since]) / (to - since) for since, to in pairwise(ends)]
