"""Classification of a thread's series of accesses: sequential, strided or shuffled.

Accesses are joined into *pieces*: an access that begins at most `near` bytes behind the end of the
previous access continues its piece. Then the jumps between pieces decide. A record of several pages
is thus a single piece, and the kernel's own steps (16 pages mapped around a fault) are no jumps.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from dltune.schemas.io import PatternKind

# fewer accesses than this are not classified
LEAST = 8
# most jumps of a sequential reader, or one in each series: to the file's header, to the next epoch
FEW_JUMPS = 3
# of all that was passed over: pieces so long are epochs
EPOCH = 0.25
# of jumps: forward, or of nearly the common length
MOST, REGULAR = 0.85, 0.6
# jumps within this of the median have the common length
ALIKE = 0.35
# of the bytes passed over: a forward reader that read so much left nothing out
FILLED = 0.7


@dataclass(frozen=True)
class Pattern:
    """A pattern. `stride`: from a piece's start to the start of the next piece, the median of
    forward jumps; `run`: the median length of pieces. In bytes."""

    kind: PatternKind
    stride: float | None = None
    run: float | None = None


def classify(bursts: Sequence[Sequence[tuple[int, int]]], near: int) -> Pattern:
    """Classify series of accesses (offset, length) in their order: each series is complete, and the
    accesses between two series are unknown."""
    if sum(map(len, bursts)) < LEAST:
        return Pattern("unknown")
    series = [_pieces(accesses, near) for accesses in bursts if accesses]
    pieces = [piece for found in series for piece in found]
    run = statistics.median(end - start for start, end in pieces)
    jumps = [b[0] - a[0] for found in series for a, b in itertools.pairwise(found)]
    span = max(end for _, end in pieces) - min(start for start, _ in pieces)
    if len(jumps) <= max(FEW_JUMPS, len(series)) or _typical(pieces) >= EPOCH * span:
        return Pattern("sequential", None, run)
    forward = [jump for jump in jumps if jump > 0]
    share = len(forward) / len(jumps)
    stride = statistics.median(forward) if forward else None
    if share >= MOST and stride is not None:
        alike = sum(abs(jump - stride) <= ALIKE * stride for jump in forward)
        return Pattern("strided" if alike >= REGULAR * len(jumps) else "mixed", stride, run)
    starts = [start for start, _ in pieces]
    return Pattern("shuffled" if _at_random(jumps, starts) else "mixed", stride, run)


def classify_sampled(accesses: Sequence[tuple[int, int]], read: int | None) -> Pattern:
    """Classify a sample of the accesses, in their order; `read`: bytes read between the first and
    the last of them, None when that is not known.

    Between two samples, a forward reader has read the bytes or passed over them: the number of
    bytes read shows which.
    """
    if len(accesses) < LEAST:
        return Pattern("unknown")
    run = statistics.median(length for _, length in accesses)
    starts = [start for start, _ in accesses]
    # an access seen twice
    steps = [b - a for a, b in itertools.pairwise(starts) if a != b]
    if not steps:
        return Pattern("unknown")
    forward = [step for step in steps if step > 0]
    share = len(forward) / len(steps)
    if share >= MOST:
        if read is None:
            return Pattern("unknown", None, run)
        if read >= FILLED * sum(forward):
            return Pattern("sequential", None, run)
        # of the whole way it read a part, a piece at a time
        return Pattern("strided", run * sum(forward) / max(read, 1), run)
    return Pattern("shuffled" if _at_random(steps, starts) else "mixed", None, run)


def _pieces(accesses: Sequence[tuple[int, int]], near: int) -> list[tuple[int, int]]:
    """Return the start and end of each piece. A single access elsewhere, to a page of an index such
    as LMDB's leaf pages, does not end the piece that goes on behind it."""
    pieces: list[tuple[int, int]] = []
    start, end = accesses[0][0], accesses[0][0] + accesses[0][1]
    for at, (offset, length) in enumerate(accesses[1:], start=1):
        # a step back into the piece is a page of it that is touched again
        if start <= offset <= end + near:
            end = max(end, offset + length)
            continue
        follows = accesses[at + 1][0] if at + 1 < len(accesses) else None
        if follows is not None and end <= follows <= end + near:
            continue
        pieces.append((start, end))
        start, end = offset, offset + length
    pieces.append((start, end))
    return pieces


def _typical(pieces: Sequence[tuple[int, int]]) -> float:
    """Return the mean length of the piece around a byte: a few pages elsewhere do not count."""
    lengths = [end - start for start, end in pieces]
    return sum(length * length for length in lengths) / max(1, sum(lengths))


def _at_random(jumps: Sequence[int], starts: Sequence[int]) -> bool:
    """Return True if about half of all jumps go forward, and they are as long as between random
    places: two places that take turns are no shuffle, and neither is a few steps to and fro. Two
    random places of a range are on average a third of it apart."""
    share = sum(jump > 0 for jump in jumps) / len(jumps)
    span = max(starts) - min(starts)
    if not 0.25 <= share <= 0.75 or span == 0 or len(set(starts)) < len(starts) // 4:
        return False
    return statistics.fmean(map(abs, jumps)) / span >= 0.15
