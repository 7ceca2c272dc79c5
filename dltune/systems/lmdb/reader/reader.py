"""Records of an LMDB file, for training jobs: a rank's batches, or any record by its position."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dltune.base.errors import UsageError
from dltune.systems.lmdb.format.datafile import data_path
from dltune.systems.lmdb.reader import node
from dltune.systems.lmdb.reader.database import Database
from dltune.systems.lmdb.reader.node import ENTRY, Filled, Filling
from dltune.systems.lmdb.reader.options import (
    Layout,
    Options,
    Order,
    Sequential,
    Share,
    Shuffled,
    layout,
    planned,
)
from dltune.systems.lmdb.reader.tokens import Tokens

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# readers of each file that this process has begun: all ranks of a job count alike
_begun: Counter[Path] = Counter()


class Record(NamedTuple):
    """One record of the database."""

    key: bytes
    value: bytes


class Reader:
    """Batches of a rank: `for records in reader` gives lists of `batch` records, without end.

    All ranks together go through the database as one circular sequence, each taking its share of
    every iteration (`Share`), so that a batch is always full. `shuffle`: the seed of a random
    order, new in each epoch and the same on all ranks; None for the order of keys.

        with Reader("train.lmdb", batch=32, shuffle=1) as reader:
            for records in itertools.islice(reader, reader.per_epoch):  # an epoch
                train([decode(record.value) for record in records])

    Rank, number of ranks, and the ranks of this node come from the launcher's variables (Horovod,
    Open MPI, Intel MPI, MPICH, MVAPICH, Slurm, torchrun). With `options.node` all ranks of a node
    must open the reader, with the same arguments, as they would a collective operation.

    Reading begins with the first batch, in a thread of local rank 0; each batch is copied out of
    the shared memory, so it stays as it is. Close the reader, or use it in a `with` block; a killed
    process leaves nothing behind.

    A writer may commit meanwhile: see `database.Database`.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        batch: int,
        shuffle: int | None = None,
        run: int | None = None,
        database: bytes | None = None,
        first: int = 0,
        iterations: int | None = None,
        rank: int | None = None,
        size: int | None = None,
        options: Options | None = None,
    ) -> None:
        """`batch`: records of this rank in an iteration; `run`: in pieces of so many neighbours
        (a batch by default, 1 as Caffe, several batches for larger requests). `first`: the
        iteration to begin with, to go on with a training; `iterations`: how many, None without end.
        `rank` of `size`: instead of the launcher's. `options`: None takes them from the plan that
        the job runs with, if it has them.

        Raises UsageError for arguments and variables that cannot be. That the file cannot be read
        is reported with the first batch.
        """
        if first < 0 or (iterations is not None and iterations < 0):
            raise UsageError("first and iterations must be at least 0", remedy=None)
        self.path = data_path(Path(path))
        self.options = planned(self.path) if options is None else options
        self.share = Share.of(rank, size, batch, run)
        self._shuffle = shuffle
        self._database = database
        self._first = first
        self._last = None if iterations is None else first + iterations
        self._member: node.Member | None = None
        self._batches: Iterator[list[Record]] | None = None
        self._end: Callable[[], object] | None = None
        self._closed = False

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading ahead and give the memory back."""
        self._closed = True
        self._batches = iter(())
        self._member = None
        if self._end:
            self._end()
            self._end = None

    @property
    def per_epoch(self) -> int:
        """Iterations in which all ranks together have read each record at least once."""
        return self.share.per_epoch(self._started().records)

    def __iter__(self) -> Iterator[list[Record]]:
        return self

    def __next__(self) -> list[Record]:
        if self._batches is None:
            self._batches = self._read(self._started())
        return next(self._batches)

    def _started(self) -> node.Member:
        if self._member is None:
            if self._closed:
                raise UsageError("the reader is closed", remedy="open a new reader")
            self._member = self._begun()
            self._end = weakref.finalize(self, self._member.close)
        return self._member

    def _begun(self) -> node.Member:
        from dltune.job.rank_layout import local_rank

        local = local_rank(os.environ) if self.options.node else None
        size = local.size if local and self.share.size > 1 else 1
        if local is None or size == 1:
            return node.lead(None, self.share.rank, 1, self.options.memory, self._filling)
        try:
            name = node.meeting_name(os.environ, self.path, _begun[self.path])
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror}", remedy=None) from None
        _begun[self.path] += 1
        if local.rank:
            return node.join(name, self.share.rank)
        return node.lead(name, self.share.rank, size, self.options.memory, self._filling)

    def _filling(self, ranks: list[int], memory: node.Memory) -> Filling:
        share, options = self.share, self.options
        database = Database(self.path, self._database, direct=options.direct)
        order: Order = Sequential(len(database))
        if self._shuffle is not None:
            order = Shuffled(len(database), self._shuffle)
        tokens = None
        if options.stagger is not None:
            tokens = Tokens(self.path, options.stagger, min(ranks))
        return Filling(
            database,
            order,
            [replace(share, rank=rank) for rank in ranks],
            options,
            tokens,
            memory.address,
            self._first,
            self._last,
        )

    def _read(self, member: node.Member) -> Iterator[list[Record]]:
        while (filled := member.take()) is not None:
            rows = _rows(member, filled, self.share.batch)
            for iteration in rows:
                yield [
                    Record(member.memory.map[k : k + m], member.memory.map[v : v + n])
                    for v, n, k, m in iteration.tolist()
                ]
            del rows, iteration  # views of the memory
            member.give_back(filled.slot)


def _rows(member: node.Member, filled: Filled, batch: int) -> NDArray[np.uint64]:
    """(iterations, batch, ENTRY): this rank's part of the slot's table."""
    import numpy as np

    count = filled.iterations * batch * ENTRY
    start = filled.table + member.place * count * 8
    rows = np.frombuffer(member.memory.map, np.uint64, count, start)
    return rows.reshape(filled.iterations, batch, ENTRY)


class Records:
    """The records of a database as a sequence, in the order of keys.

    `records[7]` is a record, `records.read([3, 1, 3])` several, with as many requests in flight as
    `options.parallel` and neighbours read at once. PyTorch's DataLoader takes it as a data set, and
    reads whole batches by `__getitems__`. Can be used by several threads, forked and pickled.
    A writer may commit meanwhile: see `database.Database`.

    It serves samplers of a job's own and PyTorch's map-style data sets.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        database: bytes | None = None,
        options: Options | None = None,
    ) -> None:
        """Raises UsageError when the file cannot be read or has no such database."""
        self._arguments = (Path(path), database, options)
        self.options = planned(Path(path)) if options is None else options
        self._database = Database(Path(path), database, direct=self.options.direct)
        self._buffer = _room(mmap.PAGESIZE)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._database)

    def __getitem__(self, position: int) -> Record:
        at = position + len(self) if position < 0 else position
        if not 0 <= at < len(self):
            raise IndexError(position)
        return self.read([at])[0]

    def __getitems__(self, positions: Sequence[int]) -> list[Record]:
        return self.read(positions)

    def read(self, positions: Sequence[int]) -> list[Record]:
        """The records at these positions, 0 <= position < len(self).

        Raises UsageError when the file cannot be read, or is written over faster than it is read.
        """
        import numpy as np

        wanted = np.asarray(positions, np.int64)
        if not wanted.size:
            return []
        if wanted.min() < 0 or wanted.max() >= len(self):
            raise IndexError(f"positions are from 0 to {len(self) - 1}")
        database, options = self._database, self.options

        def lay_out() -> tuple[NDArray[np.int64], Layout]:
            at, index = database.current(wanted), database.index
            return at, layout(index.offsets[at], index.sizes[at], options.block, options.gap)

        def read(chosen: tuple[NDArray[np.int64], Layout]) -> UsageError | None:
            _, found = chosen
            if found.size > len(self._buffer):
                self._buffer = _room(found.size)
            address = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))
            return database.fetch(found.pieces, address, options.parallel)

        with self._lock:
            at, found = database.settled(lay_out, read, "let the writer commit less often")
            keys, ends = database.index.keys_at(at)
            places, sizes = found.places.tolist(), database.index.sizes[at].tolist()
            return [
                Record(keys[a:b], self._buffer[place : place + size])
                for (a, b), place, size in zip(
                    pairwise([0, *ends.tolist()]), places, sizes, strict=True
                )
            ]

    def close(self) -> None:
        self._database.close()

    def __getstate__(self) -> tuple[Path, bytes | None, Options | None]:
        return self._arguments

    def __setstate__(self, state: tuple[Path, bytes | None, Options | None]) -> None:
        path, database, options = state
        Records.__init__(self, path, database=database, options=options)

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _room(size: int) -> mmap.mmap:
    """Memory at the beginning of a page, of this process alone: that of a fork is its own."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
