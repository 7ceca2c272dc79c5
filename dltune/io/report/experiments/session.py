"""One file, read cold in every way, in turns, within a time that is told before."""

from __future__ import annotations

import contextlib
import datetime
import os
import random
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dltune import __version__
from dltune.documents import io
from dltune.errors import UsageError
from dltune.io.report import formats
from dltune.io.report.cached import cached
from dltune.io.report.experiments import cold, figures
from dltune.io.report.experiments.figures import Runs
from dltune.io.report.experiments.findings import diagnose
from dltune.io.report.experiments.readers import Readers, Refused, Task
from dltune.io.report.experiments.records import Records, records
from dltune.io.report.experiments.ways import CEILINGS, Kind, Way, ways
from dltune.io.report.shown import size
from dltune.io.report.storage import hint_step, storage

REPEATS = 3
MIB = 1 << 20
LEAST_SIZE = MIB
PAGE = 4096
# besides reading: dropping pages and telling the readers, for each run
AROUND_SECONDS = 0.1
# the least time of one run that tells something
LEAST_SECONDS = 0.1
# more than the fastest way reads in a run, so that it never ends early
MARGIN = 1.3


def experiment(
    path: Path,
    readers: Sequence[int],
    seconds: float,
    *,
    say: Callable[[str], None],
    tell: Callable[[str], None],
) -> io.Io:
    """Read `path` (an LMDB folder, or a file of any format) in every way for about `seconds`.

    `say` is told sentences that stay, `tell` where it is. Raises UsageError when there is no such
    plain file, when it is too small to tell anything, cannot be read cold, or vanishes.
    """
    path = _inside(path)
    with _opened(path) as descriptor:
        size_, place = os.fstat(descriptor).st_size, storage(path)
        kind = formats.recognise(os.pread(descriptor, formats.HEAD, 0), path.name, size_) or "other"
        with Readers(path, max(*readers, *(parallel for parallel, _ in CEILINGS))) as processes:
            began = time.monotonic()
            session = _Session(path, descriptor, processes, place)
            tell("how fast the storage is")
            # how many ways there are does not depend on how long each one runs
            span = session.calibrate(min(1.0, seconds / 20), size_)
            tell("where the records lie")
            found = records(path, descriptor, kind, span)
            step = hint_step(place)
            plan = _plan(found, readers, seconds, span, step, kind == "lmdb", session.direct)
            window = sum(plan.records.sizes)
            say(
                f"{len(plan.ways)} ways of reading {size(window)} of {path.name}, {REPEATS} rounds "
                f"of at most {plan.each:.2f} s each: about "
                f"{REPEATS * len(plan.ways) * (plan.each + AROUND_SECONDS):.0f} s"
            )
            runs = session.rounds(plan.ways, tell)
            took = time.monotonic() - began
        return _document(path, kind, size_, place, readers, plan, runs, session, took)


@dataclass(frozen=True)
class _Plan:
    records: Records
    span: int
    each: float
    ways: list[Way]


def _plan(
    found: Records,
    readers: Sequence[int],
    seconds: float,
    span: int,
    hint_step: int,
    cursor: bool,
    direct: bool,
) -> _Plan:
    """Runs so long that all of them take `seconds`, on as much of the file as the fastest of them
    reads in that time."""

    def made(window: Records, each: float, span: int) -> list[Way]:
        return ways(
            window,
            span,
            readers,
            seconds=each,
            hint_step=hint_step,
            cursor=cursor,
            direct=direct,
        )

    count = len(made(found.window(span), 1.0, span))
    each = max(LEAST_SECONDS, seconds / (REPEATS * count) - AROUND_SECONDS)
    window = found.window(span)
    return _Plan(window, span, each, made(window, each, span))


class _Session:
    def __init__(self, path: Path, descriptor: int, readers: Readers, place: io.Storage) -> None:
        self._path = path
        self._descriptor = descriptor
        self._readers = readers
        self._counted = place.counted
        self.confirmed = True
        self.direct = self._takes_direct()

    def _takes_direct(self) -> bool:
        try:
            self._readers.run(Task("direct", 1, [0], [PAGE], 1.0))
        except Refused:
            return False
        return True

    def calibrate(self, seconds: float, size_: int) -> int:
        """How much of the file's front to use: what the fastest way reads in `seconds`, read once
        so that what is behind the storage (a host, a server) is as warm for each way."""
        self.confirmed = cold.drop(self._path, self._descriptor)
        block = 4 * MIB
        offsets = range(0, size_, block)
        sizes = [min(block, size_ - at) for at in offsets]
        task = Task("direct" if self.direct else "pread", 4, offsets, sizes, seconds)
        done = sum(outcome.bytes for outcome in self._readers.run(task))
        return max(min(size_, 8 * MIB), min(size_, int(done * MARGIN)))

    def rounds(self, compared: Sequence[Way], tell: Callable[[str], None]) -> dict[Kind, Runs]:
        """Every way once a round, in another order each time, so that the machine's drift hits all
        alike."""
        runs: dict[Kind, Runs] = {way.kind: Runs() for way in compared}
        order = list(compared)
        for turn in range(REPEATS):
            random.Random(turn).shuffle(order)
            for n, way in enumerate(order):
                tell(f"round {turn + 1} of {REPEATS}, {n + 1} of {len(order)}: {_named(way.kind)}")
                self._run(way, runs[way.kind])
        return runs

    def _run(self, way: Way, runs: Runs) -> None:
        self.confirmed &= cold.drop(self._path, self._descriptor)
        outcomes = self._readers.run(way.task)
        came: int | None = sum(outcome.storage for outcome in outcomes)
        if not self._counted:
            # the kernel counts no such reads; what is in the page cache now was not there before
            now = cached(self._descriptor) if way.task.method != "direct" else None
            came = now.now if now else None
        runs.outcomes.append(outcomes)
        runs.storage.append(came)


def _named(kind: Kind) -> str:
    return " ".join(str(part) for part in kind)


def _inside(path: Path) -> Path:
    """An LMDB folder means its data file."""
    return path / "data.mdb" if path.is_dir() and (path / "data.mdb").exists() else path


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Raises UsageError for what is no plain file of some size."""
    try:
        # a pipe without a writer would block
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise UsageError(
                f"{path} is a folder", remedy="name a data file in it, or an LMDB folder"
            )
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{path} is not a plain file", remedy="name a data file")
        if status.st_size == 0:
            raise UsageError(f"{path} is empty", remedy="name a file with data")
        if status.st_size < LEAST_SIZE:
            raise UsageError(
                f"{path} has only {size(status.st_size)}: it tells nothing about its storage",
                remedy=f"name a file of {size(LEAST_SIZE)} and more",
            )
        yield descriptor
    finally:
        os.close(descriptor)


def _document(
    path: Path,
    kind: io.FileFormat,
    size_: int,
    place: io.Storage,
    readers: Sequence[int],
    plan: _Plan,
    runs: dict[Kind, Runs],
    session: _Session,
    took: float,
) -> io.Io:
    ceiling = figures.ceiling(plan.ways, runs)
    strided = tuple(
        figures.strided(way, runs[way.kind]) for way in plan.ways if way.kind[0] == "strided"
    )
    present = next(s for s in strided if s.method == "mmap")
    seek = next((way for way in plan.ways if way.kind[0] == "seek"), None)
    shuffled = tuple(
        figures.shuffled(way, runs[way.kind]) for way in plan.ways if way.kind[0] == "shuffled"
    )
    confirmed = (
        "posix_fadvise(DONTNEED), confirmed by the page cache before each run"
        if session.confirmed
        else "posix_fadvise(DONTNEED); the page cache of another user's file cannot be looked at"
    )
    measured = io.Experiment(
        path=str(path),
        format=kind,
        size=size_,
        device=place.device,
        readers=tuple(readers),
        records=len(plan.records.sizes),
        mean_size=sum(plan.records.sizes) / len(plan.records.sizes),
        window=plan.span,
        repeats=REPEATS,
        seconds=took,
        cold=confirmed,
        ceiling=ceiling,
        strided=strided,
        blocks=tuple(
            figures.block(way, runs[way.kind]) for way in plan.ways if way.kind[0] == "block"
        ),
        shuffled=shuffled,
        seek=figures.seek(plan.records, runs[seek.kind], shuffled) if seek else None,
        share_of_ceiling=present.throughput.median / max(1.0, ceiling.throughput.median),
    )
    return io.Io(
        schema=io.SCHEMA,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        dltune=__version__,
        subject=str(path),
        partial=None,
        storage=(place,),
        watch=None,
        experiment=measured,
        findings=diagnose(measured, place),
        unseen=tuple(_unseen(place, session)),
    )


def _unseen(place: io.Storage, session: _Session) -> Iterator[str]:
    yield (
        "what is cached below this kernel (a host's memory, a server's, a disk's own) cannot be "
        "dropped from here: the window was read once before, so that it is as warm for each way"
    )
    if not session.direct:
        yield f"O_DIRECT: {place.kind} does not take it; the ceiling is that of plain cold reads"
    if not place.counted:
        yield (
            f"read_bytes: the kernel does not count reads from {place.kind}; bytes from storage "
            "are what came into the page cache"
        )
    if not session.confirmed:
        yield "whether pages were gone: the page cache of this file does not show itself here"
