"""Runs of a reading experiment: records, ways of reading, and the processes that read."""

from __future__ import annotations

import array
import os
import pickle
import random
import struct
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.job.subprocesses import OF_DLTUNE, python_path
from dltune.schemas.io import FileFormat, Method, Walk

# of files whose format has no records, or none known here
PIECE = 128 << 10


@dataclass(frozen=True)
class Records:
    """Offsets and sizes in bytes, in the order of keys or of the file."""

    offsets: Sequence[int]
    sizes: Sequence[int]

    def window(self, limit: int) -> Records:
        """The first records, of `limit` bytes together; at least 8, or all."""
        n = max(8, bisect_left(list(accumulate(self.sizes)), limit) + 1)
        return Records(self.offsets[:n], self.sizes[:n])


def records(path: Path, descriptor: int, kind: FileFormat, limit: int) -> Records:
    """The first records of about `limit` bytes of an open file.

    Raises UsageError for a damaged LMDB file.

    Positions are those of the file's format, else equal pieces.
    """
    if kind == "lmdb":
        return _lmdb(path, limit)
    size = os.fstat(descriptor).st_size
    found = None
    if kind == "npy":
        found = _npy(path, size)
    elif kind == "tfrecord":
        found = _tfrecord(descriptor, size, limit)
    return found or _pieces(0, size, PIECE)


def _lmdb(path: Path, limit: int) -> Records:
    """Return the records of the database with the most bytes."""
    import numpy as np

    from dltune.systems.lmdb.format.index import Index

    index = max(Index.all(path), key=lambda one: int(one.sizes.sum(dtype=np.uint64)))
    keep = np.flatnonzero(index.sizes)
    ends = np.cumsum(index.sizes[keep], dtype=np.uint64)
    keep = keep[: max(8, int(np.searchsorted(ends, limit)) + 1)]
    if not len(keep):
        raise UsageError(f"{path} has no records", remedy="name a file that has records")
    return Records(index.offsets[keep].tolist(), index.sizes[keep].tolist())


def _npy(path: Path, size: int) -> Records | None:
    """Rows of the first axis; small ones are put together to a page."""
    import numpy as np

    try:
        array = np.load(path, mmap_mode="r")
    except (OSError, ValueError):  # it has vanished; it has objects, or is cut off
        return None
    if not array.size or not array.shape or not array.flags.c_contiguous:
        return None
    row = array.nbytes // len(array)
    return _pieces(array.offset, size, row * -(-4096 // row) if row < 4096 else row)


def _tfrecord(descriptor: int, size: int, limit: int) -> Records | None:
    """Each record: length in 8 bytes, 4 of checksum, the data, 4 of checksum."""
    offsets, sizes = [], []
    at = 0
    while at + 16 <= size and at < limit:
        (length,) = struct.unpack("<Q", os.pread(descriptor, 8, at))
        if at + length + 16 > size:
            break
        offsets.append(at)
        sizes.append(length + 16)
        at += length + 16
    return Records(offsets, sizes) if len(offsets) >= 8 else None


def _pieces(start: int, end: int, piece: int) -> Records:
    offsets = range(start, max(start + 1, end - piece + 1), piece)
    return Records(offsets, [min(piece, end - offset) for offset in offsets])


MODULE = "dltune.systems.lmdb.experiments.reader"
READY, GO = "ready", "go"


@dataclass(frozen=True)
class Task:
    """The work of all readers of a run: read pieces (bytes `offsets` and `sizes`) for `seconds` at
    most, reader r of n every n-th from r on.

    walk     "cursor": touch the first page of the pieces between, too; "offsets": pass them over
    advised  advise the kernel to expect random access
    ahead    hint so many pieces ahead (WILLNEED), in steps of `hint_step` bytes
    apart    each reader has a contiguous part instead
    passing  with walk "cursor": read nothing, pass everything
    """

    method: Method
    readers: int
    offsets: Sequence[int]
    sizes: Sequence[int]
    seconds: float
    walk: Walk = "offsets"
    advised: bool = False
    ahead: int = 0
    hint_step: int = 128 << 10
    apart: bool = False
    passing: bool = False


@dataclass(frozen=True)
class Outcome:
    """The cost of reading for one process. Seconds and bytes; `began` and `ended` of
    CLOCK_MONOTONIC; `queued`: ready, waiting for a CPU; `storage`: read_bytes, 0 where the kernel
    does not count."""

    began: float
    ended: float
    bytes: int
    records: int
    passed: int
    cpu: float
    queued: float
    voluntary: int
    involuntary: int
    major: int
    storage: int

    @property
    def seconds(self) -> float:
        return max(1e-9, self.ended - self.began)

    @property
    def asleep(self) -> float:
        """The share of the time neither on a CPU nor waiting for one."""
        return min(1.0, max(0.0, 1.0 - (self.cpu + self.queued) / self.seconds))


class Refused(Exception):
    """The file cannot be read this way; the message is the system's own."""


class Readers:
    """Reading processes, kept for a whole session so that starting them costs nothing. Use as a
    context manager: leaving the block ends the processes."""

    def __init__(self, path: Path, count: int) -> None:
        self._path = path
        environment = {**os.environ, "PYTHONPATH": python_path(OF_DLTUNE)}
        self._children = [
            subprocess.Popen(
                [sys.executable, "-m", MODULE],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            for _ in range(count)
        ]

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.kill()
        for child in self._children:
            with child:
                pass

    def run(self, task: Task) -> list[Outcome]:
        """Let `task.readers` processes read at the same time.

        Raises Refused when the storage does not take this way of reading (O_DIRECT), UsageError
        when the file has vanished, and when a reader died (the file became shorter).
        """
        children = self._children[: task.readers]
        count = len(task.offsets)
        for rank, child in enumerate(children):
            low, high, every, number = 0, count, task.readers, rank
            if task.apart:
                low, high = rank * count // task.readers, (rank + 1) * count // task.readers
                every, number = 1, 0
            offsets, sizes = (
                array.array("q", part[low:high]) for part in (task.offsets, task.sizes)
            )
            own = replace(task, readers=every, offsets=offsets, sizes=sizes)
            self._send(child, (str(self._path), -1 if task.passing else number, own))
        answers = [self._answer(child) for child in children]
        ready = [child for child, answer in zip(children, answers, strict=True) if answer == READY]
        for child in ready:
            self._send(child, GO)
        answers += [self._answer(child) for child in ready]
        return [self._outcome(answer) for answer in answers if answer != READY]

    def _send(self, child: subprocess.Popen[bytes], message: object) -> None:
        assert child.stdin is not None
        try:
            pickle.dump(message, child.stdin)
            child.stdin.flush()
        except OSError:
            raise self._died() from None

    def _answer(self, child: subprocess.Popen[bytes]) -> Outcome | str:
        assert child.stdout is not None
        try:
            answer: Outcome | str = pickle.load(child.stdout)
        except EOFError:
            raise self._died() from None
        return answer

    def _outcome(self, answer: Outcome | str) -> Outcome:
        if isinstance(answer, str):
            raise self._unless_vanished(Refused(answer))
        return answer

    def _died(self) -> Exception:
        # reading a mapping beyond a file's end kills (SIGBUS)
        return self._unless_vanished(
            UsageError(
                f"{self._path} became shorter while it was read, or its storage failed",
                remedy="retry when no process writes to it",
            )
        )

    def _unless_vanished(self, error: Exception) -> Exception:
        if self._path.exists():
            return error
        return UsageError(f"{self._path} was deleted while it was read", remedy=None)


KIB, MIB = 1 << 10, 1 << 20
# Fig. 5.1 goes from 4 KiB to 1 GiB; from 16 MiB on nothing changes but the memory that is taken
BLOCKS = (4 * KIB, 64 * KIB, 1 * MIB, 16 * MIB)
METHODS: tuple[Method, ...] = ("mmap", "pread", "direct")
# requests at once and their size, of which the best is the storage's ceiling
CEILINGS = ((1, 4 * MIB), (4, 1 * MIB), (4, 4 * MIB), (8, 4 * MIB))
# records hinted ahead, about a batch
AHEAD = 64
SEED = 20240


@dataclass(frozen=True)
class Way:
    """`kind` names it: ("strided", readers, walk, method), ("block", method, size), ("shuffled",
    method, advised, ahead), ("seek",), ("ceiling", parallel, size).

    Of its runs: `outcomes` of the readers; `storage`: bytes that came from storage, None where
    the kernel has no count.
    """

    kind: tuple[object, ...]
    task: Task
    outcomes: list[list[Outcome]] = field(default_factory=list)
    storage: list[int | None] = field(default_factory=list)


def ways(
    records: Records,
    window: int,
    readers: Sequence[int],
    *,
    seconds: float,
    hint_step: int,
    cursor: bool,
    direct: bool,
) -> list[Way]:
    """Everything that is compared on these records and the file's first `window` bytes.

    `cursor`: the format's library passes the others' records (LMDB). `direct`: the file system
    takes O_DIRECT.
    """
    base = Task("mmap", 1, records.offsets, records.sizes, seconds, hint_step=hint_step)
    methods: list[Method] = [m for m in METHODS if direct or m != "direct"]
    walks: list[Walk] = ["cursor", "offsets"] if cursor else ["offsets"]
    straight: Method = "direct" if direct else "pread"
    made = []
    for count in readers:
        for walk in walks:
            task = replace(base, readers=count, walk=walk)
            made.append(Way(("strided", count, walk, "mmap"), task))
        task = replace(base, readers=count, method=straight)
        made.append(Way(("strided", count, "offsets", straight), task))
    for method in methods:
        for block in BLOCKS:
            if block <= window:
                task = _in_blocks(replace(base, method=method), window, block)
                made.append(Way(("block", method, block), task))
    made += list(_shuffled(base, records))
    if cursor:
        made.append(Way(("seek",), replace(base, walk="cursor", passing=True)))
    for parallel, block in CEILINGS:
        if block * parallel <= window:
            task = replace(base, method=straight, readers=parallel, apart=True)
            made.append(Way(("ceiling", parallel, block), _in_blocks(task, window, block)))
    return made


def _in_blocks(task: Task, window: int, block: int) -> Task:
    """Front to back."""
    offsets = range(0, max(1, window - block + 1), block)
    return replace(task, offsets=offsets, sizes=[min(block, window)] * len(offsets))


def _shuffled(base: Task, records: Records) -> Iterator[Way]:
    order = list(range(len(records.offsets)))
    random.Random(SEED).shuffle(order)
    task = replace(
        base,
        offsets=[records.offsets[at] for at in order],
        sizes=[records.sizes[at] for at in order],
    )
    compared: tuple[tuple[Method, bool, int], ...] = (
        ("mmap", False, 0),
        ("mmap", True, 0),
        ("mmap", True, AHEAD),
        ("pread", True, 0),
    )
    for method, advised, ahead in compared:
        kind = ("shuffled", method, advised, ahead)
        yield Way(kind, replace(task, method=method, advised=advised, ahead=ahead))
