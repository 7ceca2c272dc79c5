"""Page faults by file and offset, from the kernel's events.

Every fault of a thread is sampled with its address, in short bursts: within a burst the series is
whole, so that accesses can be distinguished, and between bursts the job is left alone. The total
number of faults is known from /proc.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from dltune.base.errors import UsageError
from dltune.system.perf.events import parse
from dltune.system.perf.ring import Lost, Ring, Sample
from dltune.system.proc.stat import threads
from dltune.watch.files.data_files import Key, Mapping

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
    """Bursts of samples. `refused`: the reason if there can be none."""

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
