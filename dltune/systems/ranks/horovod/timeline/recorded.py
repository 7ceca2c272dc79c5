"""A timeline as it was recorded: negotiations, collectives and cycles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Negotiation:
    """From `start`, when the first rank's request was seen, to `end`, when all ranks had theirs.

    Seconds since the timeline began. `last`: the ranks that came in the last pass, if not all came
    in one; None where the cache answered, which does not distinguish ranks.
    """

    tensor: str
    start: float
    end: float
    cached: bool
    last: tuple[int, ...] | None


@dataclass(frozen=True)
class Batch:
    """One collective: the tensors that travelled together, in their order.

    Seconds since the timeline began. `bytes` is None where the operation recorded no shapes.
    `transfer`: the collective alone, in seconds; `sent`: when it began.
    """

    operation: str
    tensors: tuple[str, ...]
    start: float
    end: float
    bytes: int | None
    transfer: float
    sent: float | None
    library: str | None


@dataclass(frozen=True)
class Recording:
    """A timeline, as it was recorded.

    `began`: Unix time of its zero. `cycles`: when each cycle started (none without
    HOROVOD_TIMELINE_MARK_CYCLES). `sizes`: bytes of each tensor whose shape was recorded.
    """

    path: Path
    began: float
    seconds: float
    events: int
    truncated: bool
    cycles: Sequence[float]
    negotiations: Sequence[Negotiation]
    batches: Sequence[Batch]
    sizes: dict[str, int]


def steps(batches: Sequence[Batch], operation: str = "ALLREDUCE") -> list[list[Batch]]:
    """The batches of each training step: a tensor that comes again begins the next one.

    For jobs that reduce the same tensors, under the same names, in each step.
    """
    found: list[list[Batch]] = []
    seen: set[str] = set()
    for batch in batches:
        if batch.operation != operation:
            continue
        if not found or not seen.isdisjoint(batch.tensors):
            found.append([])
            seen.clear()
        found[-1].append(batch)
        seen.update(batch.tensors)
    return found
