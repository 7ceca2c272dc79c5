"""Records coalesced into requests, and the place of each record in memory then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dltune.systems.lmdb.reader.options import PAGE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Layout:
    """`pieces`: (n, 4) for `fetch_binding.fetch`, `places`: of each record, `size`: bytes of
    memory."""

    pieces: NDArray[np.uint64]
    places: NDArray[np.int64]
    size: int


def layout(offsets: NDArray[np.uint64], sizes: NDArray[np.uint32], block: int, gap: int) -> Layout:
    """Lay out records, in any order and some of them twice, as they are in the file.

    Records at most `gap` bytes apart share a span of memory; a span is read in requests of at most
    `block` bytes. Spans begin and end at pages, as direct I/O needs.
    """
    import numpy as np

    starts = offsets.astype(np.int64)
    order = np.argsort(starts, kind="stable")
    first = starts[order]
    last = first + sizes.astype(np.int64)[order]
    low = first // PAGE * PAGE
    high = np.maximum.accumulate(-(-np.maximum(last, first + 1) // PAGE) * PAGE)
    begins = np.flatnonzero(np.concatenate(([True], low[1:] > high[:-1] + gap)))
    ends = np.append(begins[1:], len(first)) - 1
    span_low, span_high = low[begins], high[ends]
    needed = np.maximum.accumulate(last)[ends]
    lengths = span_high - span_low
    memory = np.concatenate(([0], np.cumsum(lengths)))
    of_span = np.repeat(np.arange(len(begins)), ends - begins + 1)
    places = np.empty_like(starts)
    places[order] = memory[of_span] + first - span_low[of_span]

    counts = -(-lengths // block)
    span = np.repeat(np.arange(len(begins)), counts)
    start = (np.arange(len(span)) - np.repeat(np.cumsum(counts) - counts, counts)) * block
    length = np.minimum(block, lengths[span] - start)
    there = np.clip(needed[span] - span_low[span] - start, 0, length)
    pieces = np.stack((span_low[span] + start, length, there, memory[span] + start), axis=1)
    return Layout(pieces.astype(np.uint64), places, int(memory[-1]))
