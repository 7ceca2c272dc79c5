"""Options of reading records, and the parts that follow them: order, shares, requests.

`Options` are the optimisations of LMDBIO that can be chosen. `planned` returns the options that
`dltune plan io` chose for a file; the job itself reads them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from dltune.base.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dltune.systems.lmdb.section import FilePlan, IoPlan


PAGE = 4096  # bytes; what direct I/O must be aligned to at most


@dataclass(frozen=True)
class Options:
    """Options of one reader. Sizes are bytes.

    node      one process of a node reads for all its ranks, over shared memory (LMM); otherwise
              each rank reads for itself
    direct    past the page cache, with O_DIRECT (DIO). Records read again in the next epoch come
              from storage again: for databases larger than the memory, and file systems whose
              page cache is slow
    memory    of all slots; iterations are read ahead until they fill it (COAL)
    block     of one request, at most; records that are next to each other are read at once (COAL)
    gap       between two records that is read along rather than skipped (COAL)
    parallel  requests in flight of one reader
    stagger   readers that can read at the same time, each holding a token; None: all (STAG)

    Raises UsageError for values that cannot be.
    """

    node: bool = True
    direct: bool = False
    memory: int = 128 << 20
    block: int = 16 << 20
    gap: int = 64 << 10
    parallel: int = 16
    stagger: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("memory", 4 * PAGE), ("block", PAGE), ("gap", 0), ("parallel", 1)):
            if getattr(self, name) < least:
                raise UsageError(
                    f"{name} must be at least {least}, got {getattr(self, name)}", remedy=None
                )
        if self.block % PAGE:
            raise UsageError(f"block must be a multiple of {PAGE}, got {self.block}", remedy=None)
        if self.stagger is not None and self.stagger < 1:
            raise UsageError(f"stagger must be at least 1, got {self.stagger}", remedy=None)


# The options that a plan has for a file
VARIABLE = "DLTUNE_IO"  # set by `dltune run`: a file with the plan's section on files
AHEAD = 16 << 20  # bytes of read-ahead hints without a plan


def planned(path: Path) -> Options:
    """The options that the job's plan has for the data file at `path`; the defaults without a plan
    or when it has none for this file. Raises UsageError when that is not one of dltune's.
    """
    file = _file(path)
    return Options(**msgspec.structs.asdict(file.reader)) if file and file.reader else Options()


def planned_ahead(path: Path) -> int:
    """Bytes of read-ahead hints that the job's plan has for the data file at `path`, 0 for none;
    `AHEAD` without. Raises UsageError when that is not one of dltune's."""
    file = _file(path)
    return AHEAD if file is None else file.ahead


def write_plan(section: IoPlan, path: Path) -> None:
    """The section for the readers of a job that has `path` in VARIABLE."""
    path.write_bytes(msgspec.json.encode(section))


def use_plan(section: IoPlan) -> None:
    """Set the plan for the readers of this process, whatever VARIABLE says."""
    global _used
    _used = section


def _file(path: Path) -> FilePlan | None:
    """Return the job's plan for the data file at `path`; None for nothing."""
    section, source = _used, os.environ.get(VARIABLE)
    if section is None and source:
        from dltune.systems.lmdb.section import IoPlan

        try:
            section = msgspec.json.decode(Path(source).read_bytes(), type=IoPlan)
        except FileNotFoundError:  # of a rank on another node than dltune's: it runs plain
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise UsageError(
                f"{VARIABLE}={source} was not set by dltune run: {error}",
                remedy=f"unset {VARIABLE}",
            ) from None
    return section.of(path) if section else None


_used: IoPlan | None = None


class Order(Protocol):
    """A circular sequence of the positions of `records` records.

    Number s of the sequence is record s mod n or, if shuffled, place s mod n of the permutation of
    epoch s div n. LMDB's readers go on with the first record after the last one, so that a block of
    records is always full (the thesis, chapter 5.2.2).
    """

    @property
    def records(self) -> int: ...

    def positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions at these numbers of the sequence, all at least 0."""
        ...


@dataclass(frozen=True)
class Sequential:
    """In the database's own order of keys."""

    records: int

    def positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return numbers % self.records


@dataclass(frozen=True)
class Shuffled:
    """Each epoch in a random order of its own, the same on all ranks for the same seed."""

    records: int
    seed: int
    _epochs: dict[int, NDArray[np.int64]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def positions(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        import numpy as np

        epochs, places = np.divmod(numbers, self.records)
        found = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            of_epoch = epochs == epoch
            found[of_epoch] = self._permutation(epoch)[places[of_epoch]]
        return found

    def _permutation(self, epoch: int) -> NDArray[np.int64]:
        import numpy as np

        known = self._epochs.get(epoch)
        if known is None:
            known = np.random.default_rng((self.seed, epoch)).permutation(self.records)
            while len(self._epochs) >= 2:  # this epoch's and the epoch read ahead
                self._epochs.pop(next(iter(self._epochs)), None)
            self._epochs[epoch] = known
        return known


@dataclass(frozen=True)
class Share:
    """The part of `rank` of `size`: `batch` records in each iteration, in runs of `run`.

    Runs go to the ranks in turn, and each rank uses its own one after the other: strided sharding.
    With run = batch all ranks together take size * batch consecutive numbers in an iteration, each
    rank its part of them in one piece (the thesis, chapter 3.1.1), with run = 1 every size-th one
    (Caffe's own data layer). A run of several batches lasts as many iterations, so that a rank's
    neighbours in the file are its own: what LMDBIO-LMM-DIO-PROV-COAL reads at once (chapter 5.2.3).
    Raises UsageError for what cannot be.
    """

    rank: int
    size: int
    batch: int
    run: int

    @classmethod
    def of(cls, rank: int | None, size: int | None, batch: int, run: int | None) -> Share:
        """`rank` of `size`: None takes the launcher's; `run`: None is one batch."""
        from dltune.job.rank_layout import Rank, world

        if (rank is None) != (size is None):
            raise UsageError("only one of rank and size is given", remedy="give both or neither")
        here = world(os.environ) if rank is None or size is None else Rank(rank, size)
        return cls(here.rank, here.size, batch, batch if run is None else run)

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise UsageError(f"batch must be at least 1, got {self.batch}", remedy=None)
        if not 0 <= self.rank < self.size:
            raise UsageError(
                f"rank must be at least 0 and below {self.size}, got {self.rank}", remedy=None
            )
        if self.run < 1 or (self.batch % self.run and self.run % self.batch):
            raise UsageError(
                f"run={self.run} neither divides batch={self.batch} nor is a multiple of it",
                remedy="choose a run of 1 or more that divides the batch, or a multiple of it",
            )

    @property
    def period(self) -> int:
        """Iterations after which all ranks together have taken consecutive numbers."""
        return max(1, self.run // self.batch)

    def per_epoch(self, records: int) -> int:
        """Iterations in which all ranks together have had each of so many records once at least."""
        taken = self.size * self.batch * self.period
        return -(-records // taken) * self.period

    def numbers(self, first: int, iterations: int) -> NDArray[np.int64]:
        """(iterations, batch): the rank's numbers in the iterations from `first` on."""
        import numpy as np

        own = np.arange(first * self.batch, (first + iterations) * self.batch)
        numbers = (own // self.run * self.size + self.rank) * self.run + own % self.run
        return numbers.reshape(iterations, self.batch)


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

    Records are coalesced into requests, and each record gets its place in memory.
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
