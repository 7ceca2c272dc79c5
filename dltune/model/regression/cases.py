"""Which cases a model predicts, and at which of them ops are sampled (section III-B)."""

from __future__ import annotations

from collections.abc import Sequence

from dltune.documents.machine import Machine
from dltune.machine.placement import placements
from dltune.model.curve import Case


def all_cases(machine: Machine) -> tuple[Case, ...]:
    """Every thread count in each of its placements: 68 on the paper's machine."""
    counts = range(1, len(machine.cores) + 1)
    return tuple((n, placement) for n in counts for placement in placements(machine, n))


def sample_cases(cases: Sequence[Case], number: int) -> tuple[Case, ...]:
    """`number` of `cases`, spread evenly from the first to the last; one: the first.

    `cases` by rising thread count; samples have different counts, so that none is only another
    placement of the one before it. Raises ValueError when there are fewer counts than that.
    """
    by_count: dict[int, Case] = {}
    for case in cases:
        by_count.setdefault(case[0], case)
    counts = sorted(by_count)
    if not 1 <= number <= len(counts):
        raise ValueError(f"{number} sample cases of {len(counts)} thread counts")
    last = len(counts) - 1
    chosen = {round(i * last / max(number - 1, 1)) for i in range(number)}
    return tuple(by_count[counts[i]] for i in sorted(chosen))
