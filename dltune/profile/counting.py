"""Performance counters read around ops while the climb goes on."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dltune.job import protocol
from dltune.job.record import NANOSECOND
from dltune.profile.climb import Case
from dltune.schemas import profile as doc
from dltune.stats import relative_spread
from dltune.system.perf.events import Event

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

    `asked` is the user's word for it, `why` a sentence on the events that could be counted here,
    `fault_seconds` the cost of a page fault here.
    """

    asked: str
    why: str
    groups: tuple[tuple[Event, ...], ...]
    fault_seconds: float | None = None


class Counting:
    """Counts by op key and case."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.overhead: doc.Ratio | None = None
        # by key, case and event: running share and value of each run
        self._runs: dict[tuple[str, Case, str], list[tuple[float, float]]] = defaultdict(list)
        self._accounts: list[protocol.Totals] = []

    def add(self, group: Sequence[Event], key: str, case: Case, counted: Sequence[float]) -> None:
        """Add one run of an op: its running share, then a value for each event of the group."""
        running, *values = counted
        for event, value in zip(group, values, strict=True):
            self._runs[key, case, event.name].append((running, value * _unit(event)))

    def counts(self, key: str, case: Case) -> tuple[doc.Count, ...]:
        """Return the counts of a run of `key` at `case`; empty when it was not counted there."""
        return tuple(
            doc.Count(
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

    def totals(self) -> tuple[doc.Total, ...]:
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
                doc.Total(
                    event=event.name,
                    ops=ops,
                    gaps=counted - ops,
                    others=others,
                    process=read(ended.process) - read(began.process),
                )
            )
        return tuple(found)

    def document(self) -> doc.Counters:
        return doc.Counters(
            asked=self.choice.asked,
            why=self.choice.why,
            groups=tuple(tuple(event.name for event in group) for group in self.choice.groups),
            totals=self.totals(),
            overhead=self.overhead,
            fault_seconds=self.choice.fault_seconds,
        )


def _unit(event: Event) -> float:
    """Return the unit of one count: clocks count nanoseconds and are reported in seconds."""
    return NANOSECOND if doc.is_clock(event.name) else 1.0


def _used(thread: protocol.Thread) -> tuple[int, ...]:
    return (thread.minor, thread.major, thread.voluntary, thread.involuntary, thread.cpu)
