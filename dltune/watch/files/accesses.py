"""Accesses of threads to files: waits for storage, page faults, and patterns of access.

The accesses come from the read calls of threads that wait for storage, and from sampled page
faults. A thread's series of accesses is classified as sequential, strided or shuffled.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import platform
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from dltune.base.errors import UsageError
from dltune.schemas.io import PatternKind
from dltune.system.kernel_files import read
from dltune.system.perf.events import parse
from dltune.system.perf.ring import Lost, Ring, Sample
from dltune.system.proc import stat
from dltune.system.proc.stat import threads
from dltune.watch.files.data_files import Key, Mapping

# Threads that wait for storage

# calls that read a file, by number: which of their arguments is the size (None for those whose
# sizes are in a vector in the process's memory) and which the offset
_READS: dict[str, dict[int, tuple[int | None, int | None]]] = {
    "x86_64": {0: (2, None), 17: (2, 3), 19: (None, None), 295: (None, 3), 327: (None, 3)},
    "aarch64": {63: (2, None), 67: (2, 3), 65: (None, None), 69: (None, 3), 286: (None, 3)},
}
# sleeping in a page fault, but for a lock and not for storage
_LOCKS = (b"rwsem", b"mutex", b"futex", b"rt_mutex")


@dataclass(frozen=True)
class Wait:
    """A thread that waits for storage.

    `descriptor`, `size` and `offset` are of its call as far as they are known; `offset` is None
    for a call that reads from the descriptor's position. All None in a page fault.
    """

    cause: Literal["call", "fault", "unknown"]
    descriptor: int | None = None
    size: int | None = None
    offset: int | None = None


def waiting(pid: int, tid: int, may_look: bool) -> Wait | None:
    """Return the thread's wait; None when it does not wait for storage, or has ended.

    The cause is a read call or a page fault: /proc/PID/task/TID/syscall has the number and
    arguments of the call that a sleeping thread is in, and -1 for a thread that sleeps in a page
    fault. It needs permission to inspect the process. Without permission, a thread in
    uninterruptible sleep counts as waiting for storage.
    """
    state = stat.state(pid, tid)
    if state is None or state not in "DS" or (state == "S" and not may_look):
        return None
    if not may_look:
        return Wait("unknown")
    folder = f"/proc/{pid}/task/{tid}"
    return parse_call(read(f"{folder}/syscall") or b"", state, read(f"{folder}/wchan") or b"")


def parse_call(call: bytes, state: str, place: bytes) -> Wait | None:
    """Parse the contents of `syscall` and `wchan`. A read call in interruptible sleep can be for a
    pipe or a socket: the caller knows the kind of the descriptor."""
    fields = call.split()
    uninterruptible = state == "D"
    if not fields or fields[0] == b"running":
        return Wait("unknown") if uninterruptible else None
    number = int(fields[0])
    if number == -1:
        # a fault on a file system in user space can be interrupted while it waits
        return None if any(lock in place for lock in _LOCKS) else Wait("fault")
    calls = _READS.get(platform.machine())
    if calls is None:  # asleep in some call of an architecture that is not known here: a read?
        return Wait("unknown") if uninterruptible else None
    if number not in calls:
        return None
    arguments = [int(field, 16) for field in fields[1:7]]
    size, offset = (None if at is None else arguments[at] for at in calls[number])
    return Wait("call", arguments[0] & 0xFFFFFFFF, size, offset)


# Page faults

PAGE = mmap.PAGESIZE
# threads that are sampled in one burst; each takes two rings of memory, which the kernel limits
THREADS, PAGES = 8, 16
# seconds of a burst: long enough for about ENOUGH faults of the busiest thread
FIRST, SHORTEST, LONGEST = 0.05, 0.01, 0.25
ENOUGH = 400
# the kernel maps cached pages around a fault (fault_around_bytes): a sequential reader's next fault
# can be this far away
AROUND = 64 << 10
# the largest piece of the page cache that is mapped as one
FOLIO = 2 << 20
# accesses kept of a thread and file
KEPT = 20_000


@dataclass
class Faults:
    """The faults of one thread on one file, in all bursts.

    `series`: the accesses of each burst in their order, (offset, bytes).
    """

    major: int = 0
    minor: int = 0
    series: list[list[tuple[int, int]]] = field(default_factory=list)

    @property
    def kept(self) -> int:
        return sum(map(len, self.series))


@dataclass
class SampledThread:
    """In the bursts: `major` and `minor` faults, those on data files and all others."""

    major: int = 0
    minor: int = 0
    files: dict[Key, Faults] = field(default_factory=dict)


class FaultWatch:
    """Page faults by file and offset, from the kernel's events, in bursts of samples.

    Every fault of a thread is sampled with its address, in short bursts: within a burst the series
    is whole, so that accesses can be distinguished, and between bursts the job is left alone. The
    total number of faults is known from /proc. `refused`: the reason if there can be no bursts.
    """

    def __init__(self) -> None:
        self.threads: dict[tuple[int, int], SampledThread] = {}
        self.pages: dict[Key, Counter[int]] = defaultdict(Counter)  # faults by page, of all threads
        # pages by process
        self.processes: dict[Key, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        self.refused: UsageError | None = None
        # of each thread (pid, tid): major faults, minor faults
        self._rings: dict[tuple[int, int], tuple[Ring, Ring]] = {}
        self.due: float | None = None  # when the burst is to end; None between bursts
        self._seconds = FIRST

    def begin(self, threads: Sequence[tuple[int, int]]) -> None:
        """A burst on threads (pid, tid), the first `THREADS` of them.

        Rings stay open, at rest, from burst to burst: opening one takes milliseconds.
        """
        chosen = threads[:THREADS]
        for gone in self._rings.keys() - set(chosen):
            self._drop(gone)
        for pid, tid in chosen:
            if (pid, tid) not in self._rings and not self._open(pid, tid):
                break
        for rings in self._rings.values():
            for ring in rings:
                ring.enable()
        if self._rings:
            self.due = time.monotonic() + self._seconds

    def _open(self, pid: int, tid: int) -> bool:
        """False when there can be no more rings."""
        try:
            major = Ring(parse("major-faults"), tid=tid, pages=PAGES)
            try:
                self._rings[pid, tid] = major, Ring(parse("minor-faults"), tid=tid, pages=PAGES)
            except UsageError:
                major.close()
                raise
        except UsageError as error:
            if tid not in threads(pid):
                return True
            # with some rings open their memory is the limit: those are enough
            if not self._rings and not self.threads:
                self.refused = error
            return False
        return True

    def _drop(self, thread: tuple[int, int]) -> None:
        for ring in self._rings.pop(thread):
            ring.close()

    def end(self, mappings: dict[int, Sequence[Mapping]]) -> None:
        """Take the samples of the burst; `mappings` of each process identify the files."""
        self.due = None
        for rings in self._rings.values():
            for ring in rings:
                ring.disable()
        most = 1
        for thread, rings in self._rings.items():
            series: list[tuple[float, bool, int]] = []
            whole_until = float("inf")
            for ring, major in zip(rings, (True, False), strict=True):
                records = ring.drain()
                samples = [record for record in records if isinstance(record, Sample)]
                series += [(sample.time, major, sample.address) for sample in samples]
                if samples and any(isinstance(record, Lost) for record in records):
                    # a full ring drops new samples: the series is whole up to there
                    whole_until = min(whole_until, samples[-1].time)
            most = max(most, len(series))
            whole = sorted(fault for fault in series if fault[0] <= whole_until)
            self._take(thread, whole, mappings.get(thread[0], ()))
        self._seconds = min(LONGEST, max(SHORTEST, self._seconds * ENOUGH / most))

    def close(self) -> None:
        for thread in list(self._rings):
            self._drop(thread)

    def _take(
        self,
        thread: tuple[int, int],
        faults: Sequence[tuple[float, bool, int]],
        mappings: Sequence[Mapping],
    ) -> None:
        sampled = self.threads.setdefault(thread, SampledThread())
        fresh: dict[Key, list[tuple[int, int]]] = defaultdict(list)  # addresses, pages of the file
        for _, major, address in faults:
            sampled.major += major
            sampled.minor += not major
            mapping = next((m for m in mappings if m.start <= address < m.end), None)
            if mapping is None:
                continue
            of_file = sampled.files.setdefault(mapping.key, Faults())
            of_file.major += major
            of_file.minor += not major
            page = (address - mapping.start + mapping.offset) // PAGE
            self.pages[mapping.key][page] += 1
            self.processes[mapping.key][thread[0]].add(page)
            fresh[mapping.key].append((address // PAGE * PAGE, page))
        for key, pages in fresh.items():
            if (of_file := sampled.files[key]).kept < KEPT:
                of_file.series.append(_mapped_through(thread[0], pages))


def _mapped_through(pid: int, pages: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the accesses to (address, page of the file): each a page, or as long as the pages up
    to the next access were mapped along with it.

    A fault maps cached pages around it, and a large folio (up to `FOLIO`) as a whole: the next
    page that faults can be far, with nothing left out between. The process's page table shows it
    (/proc/PID/pagemap, of which every 8 bytes are a page, the last bit set for one that is there).
    """
    lengths = [PAGE] * len(pages)
    with contextlib.suppress(OSError), open(f"/proc/{pid}/pagemap", "rb", buffering=0) as table:
        for at, ((address, _), (following, _)) in enumerate(itertools.pairwise(pages)):
            end = address + PAGE
            gap = following - end
            if AROUND < gap <= FOLIO:
                between = os.pread(table.fileno(), gap // PAGE * 8, end // PAGE * 8)
                if between and min(between[7::8]) >= 0x80:
                    lengths[at] += gap
    return [(page * PAGE, length) for (_, page), length in zip(pages, lengths, strict=True)]


# Patterns of access

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
    accesses between two series are unknown.

    Accesses are joined into *pieces*: an access that begins at most `near` bytes behind the end of
    the previous access continues its piece. Then the jumps between pieces decide. A record of
    several pages is thus a single piece, and the kernel's own steps (16 pages mapped around a
    fault) are no jumps.
    """
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
