"""What a model sees of an op: its time and counted events at the sample cases, and its work.

Events are divided by the instructions of the same case where these were counted, as in the paper,
"to make the feature values independent of total number of instructions"; where they were not, by
the seconds of the case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dltune.analysis.convolution import Filters
from dltune.analysis.flops import moved, operations
from dltune.schemas.profile import Op, OpTime, Profile
from dltune.simulate.model.curve import Case

INSTRUCTIONS = "instructions"


@dataclass(frozen=True)
class Layout:
    """Which features there are. `events` were counted for every op; `samples` are the cases."""

    samples: tuple[Case, ...]
    events: tuple[str, ...]

    @classmethod
    def of(cls, profiles: Sequence[Profile], samples: Sequence[Case]) -> Layout:
        """With the events that all ops of all profiles have at all samples."""
        counted = [
            {count.event for count in time.counts}
            for profile in profiles
            for op in profile.ops
            for time in at(op, samples) or ()
        ]
        common = set.intersection(*counted) if counted else ()
        return cls(tuple(samples), tuple(sorted(common)))

    @property
    def per(self) -> str:
        """What events are divided by."""
        return INSTRUCTIONS if INSTRUCTIONS in self.events else "seconds"

    @property
    def names(self) -> tuple[str, ...]:
        rates = [event for event in self.events if event != INSTRUCTIONS]
        found = []
        for threads, placement in self.samples:
            where = f"at {threads} {placement}"
            found.append(f"seconds {where}")
            found += [f"{event}/{self.per} {where}" for event in rates]
        return (*found, "operations", "bytes moved", "output bytes")

    def row(self, op: Op, known: Filters) -> tuple[float, ...] | None:
        """The features of an op in the order of `names`; None when a sample is missing."""
        times = at(op, self.samples)
        if times is None:
            return None
        row: list[float] = []
        for time in times:
            row.append(time.min)
            counts = {count.event: count.value for count in time.counts}
            if not set(self.events) <= counts.keys():
                return None
            whole = counts[INSTRUCTIONS] if self.per == INSTRUCTIONS else time.median
            rates = [counts[event] for event in self.events if event != INSTRUCTIONS]
            row += [rate / whole if whole > 0 else 0.0 for rate in rates]
        work = (operations(op, known) or 0, moved(op) or 0, op.output_bytes)
        return (*row, *map(float, work))


def at(op: Op, samples: Sequence[Case]) -> list[OpTime] | None:
    """The op's measurements at these cases; None when one is missing."""
    by_case = {(time.threads, time.placement): time for time in op.times}
    return [by_case[case] for case in samples] if by_case.keys() >= set(samples) else None


def sample_cases(cases: Sequence[Case], number: int) -> tuple[Case, ...]:
    """`number` of `cases`, spread evenly from the first to the last; one: the first.

    `cases` by rising thread count; samples have different counts, so that none is only another
    placement of the one before it. Raises ValueError when there are fewer counts than that.
    """
    by_count: dict[int, Case] = {}
    for case in cases:
        by_count.setdefault(case[0], case)
    first = list(by_count.values())
    if not 1 <= number <= len(first):
        raise ValueError(f"{number} sample cases of {len(first)} thread counts")
    last = len(first) - 1
    return tuple(first[round(i * last / max(number - 1, 1))] for i in range(number))
