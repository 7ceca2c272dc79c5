"""Read-ahead hints for an unmodified job, given by a separate process.

The process sees what the job has touched, never what it will read next. For a job that reads
sequentially it gives hints ahead of the reading position. For a job that reads in random order it
brings the whole file into memory once, from front to back, if the file fits.

`followed` starts the process as `python -m dltune.systems.lmdb.follow PID`, with the files as JSON
on stdin. The process ends with the process PID, or with its own parent. When PID ends, it prints
what it did, as JSON.
"""

from __future__ import annotations

import abc
import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy  # noqa: F401 - here, and not when the job waits

from dltune.system.proc import process
from dltune.system.proc.process import Mapping, mappings
from dltune.system.proc.stat import descendants, session
from dltune.systems.lmdb.reader import fetch_binding
from dltune.systems.lmdb.section import IoPlan
from dltune.watch.files.storage import hint_step, storage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


PAGE = 4096
# pages sampled behind the last frontier, in each sample
WINDOW = 8192
NEAR, DENSE = 64, 18  # pages
# samples without progress before the whole mapping is sampled, so many pages in each sample
PATIENCE, PART = 50, 1 << 20


def foremost(touched: NDArray[np.bool_]) -> int | None:
    """Return the number of pages up to the reading position; None when nothing is read here.

    Pages of the tree are touched far from the records, alone or with the 15 others that a fault
    maps: only a page with `DENSE` touched ones among the `NEAR` up to it is taken for reading.
    """
    import numpy as np

    count: NDArray[np.int64] = np.concatenate(
        (np.zeros(NEAR + 1, np.int64), np.cumsum(touched, dtype=np.int64))
    )
    dense = touched & (count[NEAR + 1 :] - count[: len(touched)] >= DENSE)
    found = np.flatnonzero(dense)
    return int(found[-1]) + 1 if len(found) else None


@dataclass
class _Mapping:
    """Addresses from `start` show `pages` pages of the file from page `first` on."""

    descriptor: int
    start: int
    first: int
    pages: int
    reached: int = 0  # pages of the mapping up to the last one seen
    idle: int = 0
    # of samples of the whole: the position, the result so far, and the pages seen by the one
    # before, a bit for each page of a part
    scanned: int = 0
    found: int | None = None
    known: dict[int, NDArray[np.uint8]] = field(default_factory=dict)

    def look(self) -> int | None:
        """The page of the mapping behind the foremost one read now; None when nothing was."""
        front = foremost(self._present(self.reached, min(self.pages, self.reached + WINDOW)))
        if front is not None:
            self.reached += front
            self.idle = 0
            return self.reached
        self.idle += 1
        return self._look_at_part() if self.idle >= PATIENCE else None

    def _look_at_part(self) -> int | None:
        """The same of the whole mapping, at the last of its parts: a job that has begun again, or
        was found late."""
        import numpy as np

        first, last = self.scanned, min(self.pages, self.scanned + PART)
        now = self._present(first, last)
        if len(now) < last - first:  # its process has ended
            self.idle = 0
            return None
        before = self.known.get(first)
        self.known[first] = np.packbits(now)
        if before is not None:
            now &= ~np.unpackbits(before, count=len(now)).astype(bool)
        if (front := foremost(now)) is not None:
            self.found = first + front
        self.scanned = last
        if last < self.pages:
            return None
        found, self.found, self.scanned, self.idle = self.found, None, 0, 0
        if found is None or found == self.reached:
            return None
        self.reached = found
        return found

    def _present(self, first: int, last: int) -> NDArray[np.bool_]:
        import numpy as np

        try:
            data = os.pread(self.descriptor, (last - first) * 8, (self.start // PAGE + first) * 8)
        except OSError:
            data = b""
        entries = np.frombuffer(data[: len(data) // 8 * 8], np.uint64)
        return (entries >> np.uint64(63)).astype(bool)


@dataclass
class Frontiers:
    """Where the processes of a job read one file of `size` bytes, known by device and inode.

    The position in a mapping comes from the pages in the process's own page table
    (/proc/PID/pagemap, bit 63). Hints add no pages there, but a fault maps up to 16 pages around it
    that are in memory. A descriptor that is read has its own position.
    """

    device: int
    inode: int
    size: int
    _mappings: dict[tuple[int, ...], _Mapping] = field(default_factory=dict)
    _descriptors: list[tuple[int, int]] = field(default_factory=list)

    def survey(self, pids: set[int]) -> None:
        """Find who has the file mapped or open now."""
        file = self.device, self.inode
        found: dict[tuple[int, ...], _Mapping] = {}
        self._descriptors = []
        for pid in pids:
            with contextlib.suppress(OSError):  # ended meanwhile, or another user's
                for place in mappings(pid):
                    if not self._shows(pid, place):
                        continue
                    # a window that slides through the file can be at the same address again
                    key = pid, place.start, place.end, place.offset
                    known = self._mappings.pop(key, None)
                    if known is None:
                        descriptor = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
                        shown = min(place.end - place.start, self.size - place.offset)
                        pages = max(0, -(-shown // PAGE))  # a mapping can be longer than its file
                        known = _Mapping(descriptor, place.start, place.offset // PAGE, pages)
                    found[key] = known
                self._descriptors += [
                    (pid, opened.number)
                    for opened in process.plain_files(pid)
                    if (opened.status.st_dev, opened.status.st_ino) == file
                ]
        for gone in self._mappings.values():
            os.close(gone.descriptor)
        self._mappings = found

    def _shows(self, pid: int, place: Mapping) -> bool:
        """Return True if it is this file that is mapped there."""
        if place.inode != self.inode or place.device == self.device:
            return place.inode == self.inode
        with contextlib.suppress(OSError):  # file systems with separate devices: btrfs, overlay
            status = os.stat(f"/proc/{pid}/root{place.path}")  # noqa: PTH116 - no path to resolve
            return (status.st_dev, status.st_ino) == (self.device, self.inode)
        return False

    def look(self) -> list[int]:
        """Return, for each reader, the bytes from the file's start to behind the pages that it
        touched since the last sample."""
        found = []
        for mapping in self._mappings.values():
            reached = mapping.look()
            if reached is not None:
                found.append((mapping.first + reached) * PAGE)
        for pid, number in self._descriptors:
            place = process.position(pid, number)
            if place and place.at:
                found.append(place.at)
        return found


CHUNK = 8 << 20  # bytes of a whole file that are on their way at a time


class Hints(abc.ABC):
    """Hints for one file: requests to the kernel for the data ahead of the reading position, or for
    the whole file once. `asked`: bytes so far."""

    def __init__(self, path: Path) -> None:
        """Raises OSError when the file cannot be read."""
        self.path = path
        self.asked = 0
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self.descriptor).st_size
        self._step = hint_step(storage(path))

    def ask(self, start: int, end: int) -> None:
        import numpy as np

        offsets, lengths = np.array([[start], [end - start]], np.uint64)
        fetch_binding.advise(self.descriptor, offsets, lengths, self._step)
        self.asked += end - start

    @abc.abstractmethod
    def look(self) -> None:
        """Ask for the next pages, if there are any."""


class Ahead(Hints):
    """Keeps `ahead` bytes before the foremost reader on their way."""

    def __init__(self, path: Path, ahead: int) -> None:
        super().__init__(path)
        self.ahead = ahead
        status = os.fstat(self.descriptor)
        self.frontiers = Frontiers(status.st_dev, status.st_ino, self.size)
        self._until = 0

    def look(self) -> None:
        """Ask for the next pages, where the job has read on."""
        front = max(self.frontiers.look(), default=0)
        if not front:
            return
        if front + self.ahead < self._until:  # it began again
            self._until = front
        start, end = max(front, self._until), min(self.size, front + self.ahead)
        # a few large hints rather than many small ones
        if end > start and end - start >= min(self.ahead // 4, self.size - start):
            self.ask(start, end)
            self._until = end


class Whole(Hints):
    """Brings all of a file into the page cache once, at most two chunks on their way."""

    def look(self) -> None:
        """Ask for a chunk, once the chunk before is there, or could not be read."""
        before = self.asked
        if before < self.size:
            with contextlib.suppress(OSError):
                self.ask(before, min(before + CHUNK, self.size))
                if before:
                    os.pread(self.descriptor, 1, before - 1)


END_SECONDS = 10.0  # for it to notice that the job has ended


@contextmanager
def followed(section: IoPlan, pid: int, say: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, hints for the job whose first process is `pid`, as planned."""
    files = [file for file in section.files if file.follow]
    if not files:
        yield
        return
    process = subprocess.Popen(
        [sys.executable, "-m", "dltune.systems.lmdb.follow", str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None
    with process.stdin:
        json.dump([msgspec.to_builtins(file) for file in files], process.stdin)
    process.stdin = None
    try:
        yield
        try:
            out, error = process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            say("the result of the read-ahead hints is unknown: their process did not end in time")
            return
        if process.returncode:
            last = (error.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
            say(f"the read-ahead hints failed: {last}")
        elif out:
            result = json.loads(out)
            for file in result["files"]:
                say(f"gave read-ahead hints for {file['asked'] / 1e6:.0f} MB of {file['path']}")
            say(f"the read-ahead hints took {result['cpu']:.2f} s of CPU time")
    finally:
        process.kill()
        process.communicate()


TICK = 0.01  # seconds between samples
SURVEY = 0.5  # seconds between surveys of who has the file open
SESSION = 20  # surveys between searches of every process of the machine
SHARE = 0.1  # of a core: the most that this process can use
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Give hints, sample by sample, until the job ends; then print what was done."""
    leader = int(sys.argv[1])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the job can go on after a SIGINT
    files = json.load(sys.stdin)
    try:
        ended = os.pidfd_open(leader)
    except ProcessLookupError:
        return
    whole = [Whole(Path(file["path"])) for file in files if file["follow"] == "whole"]
    ahead = [
        Ahead(Path(file["path"]), file["ahead"]) for file in files if file["follow"] == "ahead"
    ]
    waiter = select.poll()
    waiter.register(ended, select.POLLIN)
    began, surveyed, surveys = time.monotonic(), 0.0, 0
    orphans: set[int] = set()
    fetch_binding.load()
    spent = time.process_time()  # what starting up took is not counted
    while True:
        if ahead and time.monotonic() - surveyed > SURVEY:
            surveyed = time.monotonic()
            surveys += 1
            pids = descendants(leader)
            if surveys % SESSION == 1:
                orphans = set(session(leader))
            pids |= orphans
            for follower in ahead:
                follower.frontiers.survey(pids)
        for hints in (*ahead, *whole):
            hints.look()
        used = time.process_time() - spent
        pause = used / SHARE - (time.monotonic() - began)
        if waiter.poll(max(TICK, pause) * 1000):
            break
    asked = [{"path": str(each.path), "asked": each.asked} for each in (*ahead, *whole)]
    json.dump({"files": asked, "cpu": time.process_time()}, sys.stdout)


if __name__ == "__main__":
    main()
