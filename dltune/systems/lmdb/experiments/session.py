"""A reading experiment on one file: it is read cold in every way, in turns, in a fixed time.

Figures of the runs of each way are medians over rounds, with their spread.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from dltune import __version__
from dltune.base import documents
from dltune.base.errors import UsageError
from dltune.base.formatting import size
from dltune.findings.evidence import Evidence
from dltune.findings.rule import apply_rules
from dltune.schemas import io
from dltune.stats import relative_spread
from dltune.systems.lmdb.experiments.runs import (
    CEILINGS,
    Readers,
    Records,
    Refused,
    Task,
    Way,
    records,
    ways,
)
from dltune.systems.lmdb.format.datafile import data_path, open_plain
from dltune.watch.files import data_files
from dltune.watch.files.storage import cached, drop, hint_step, storage

MIB = 1 << 20
PAGE = 4096


def _measured(values: Sequence[float]) -> io.Measured:
    return io.Measured(median(values), relative_spread(values), len(values))


def _throughput(way: Way) -> io.Measured:
    """Bytes a second of all readers together."""
    return _measured(
        [
            sum(o.bytes for o in run)
            / max(1e-9, max(o.ended for o in run) - min(o.began for o in run))
            for run in way.outcomes
        ]
    )


def _per_mib(way: Way, field: str) -> io.Measured:
    return _measured(
        [
            sum(getattr(o, field) for o in run) / max(1, sum(o.bytes for o in run)) * MIB
            for run in way.outcomes
        ]
    )


def _asleep(way: Way) -> io.Measured:
    """The share of the readers' time together."""
    return _measured(
        [
            sum(o.asleep * o.seconds for o in run) / sum(o.seconds for o in run)
            for run in way.outcomes
        ]
    )


def _storage_share(way: Way) -> float | None:
    """Bytes from storage for each byte read."""
    shares = [
        came / max(1, sum(o.bytes for o in run))
        for came, run in zip(way.storage, way.outcomes, strict=True)
        if came is not None
    ]
    return median(shares) if shares else None


def strided_figures(way: Way) -> io.Strided:
    task = way.task
    return io.Strided(
        readers=task.readers,
        walk=task.walk,
        method=task.method,
        throughput=_throughput(way),
        switches=_per_mib(way, "voluntary"),
        involuntary=_per_mib(way, "involuntary"),
        sleep_share=_asleep(way),
        major=_per_mib(way, "major"),
        extra=extra_bytes(task),
        storage_bytes=_storage_share(way),
    )


def extra_bytes(task: Task) -> float:
    """Bytes of pages touched beyond those of the readers' own records, for each byte of records.

    As the thesis counted (section 4.1.1): a page counts once for each process that touches it.
    """
    own = [set[int]() for _ in range(task.readers)]
    touched = [set[int]() for _ in range(task.readers)]
    for at, (offset, length) in enumerate(zip(task.offsets, task.sizes, strict=True)):
        pages = range(offset // PAGE, (offset + length - 1) // PAGE + 1)
        own[at % task.readers].update(pages)
        if task.walk == "cursor":
            for rank in range(task.readers):
                touched[rank].add(pages[0])
    beyond = sum(len(t - o) for t, o in zip(touched, own, strict=True))
    return beyond * PAGE / max(1, sum(task.sizes))


def block_figures(way: Way) -> io.Block:
    return io.Block(
        method=way.task.method,
        block=way.task.sizes[0],
        throughput=_throughput(way),
        switches=_per_mib(way, "voluntary"),
        sleep_share=_asleep(way),
    )


def shuffled_figures(way: Way) -> io.Random:
    return io.Random(
        method=way.task.method,
        advised=way.task.advised,
        ahead=way.task.ahead,
        throughput=_throughput(way),
        latency=_measured([o.seconds / max(1, o.records) for (o,) in way.outcomes]),
        storage_bytes=_storage_share(way),
    )


def seek_figures(records: Records, way: Way, shuffled: Iterable[io.Random]) -> io.Seek:
    """`by_offset`: a record in the middle of nowhere by one read call."""
    passed = max(1, round(median([o.passed for (o,) in way.outcomes])))
    pages = len({offset // PAGE for offset in records.offsets[:passed]})
    straight = next(run for run in shuffled if run.method == "pread")
    return io.Seek(
        passed=passed,
        seconds=_measured([o.seconds for (o,) in way.outcomes]),
        pages=pages / passed,
        by_offset=straight.latency.median,
    )


def best_ceiling(straight: Iterable[Way]) -> io.Ceiling:
    """The best of the ways that read straight on, in parallel or alone."""
    ceilings = (
        io.Ceiling(way.task.method, way.task.sizes[0], way.task.readers, _throughput(way))
        for way in straight
    )
    return max(ceilings, key=lambda one: one.throughput.median)


REPEATS = 3
LEAST_SIZE = MIB
# time outside reading: dropping pages and instructing the readers, for each run
AROUND_SECONDS = 0.1
# the least time of one run with a useful result
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

    `say` receives sentences that stay, `tell` the current position. Raises UsageError when there is
    no such plain file, when it is too small for a result, cannot be read cold, or vanishes.
    """
    path = data_path(path)
    descriptor = open_plain(path)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, descriptor)
        size_, place = os.fstat(descriptor).st_size, storage(path)
        if size_ == 0:
            raise UsageError(f"{path} is empty", remedy="name a file with data")
        if size_ < LEAST_SIZE:
            raise UsageError(
                f"{path} has only {size(size_)}, too little to measure its storage",
                remedy=f"name a file of {size(LEAST_SIZE)} or more",
            )
        kind = (
            data_files.recognise(os.pread(descriptor, data_files.HEAD, 0), path.name, size_)
            or "other"
        )
        most = max(*readers, *(parallel for parallel, _ in CEILINGS))
        processes = stack.enter_context(Readers(path, most))
        began = time.monotonic()
        session = _Session(path, descriptor, processes, place.counted)
        tell("measuring the storage")
        span = session.calibrate(min(1.0, seconds / 20), size_)
        tell("finding the records")
        window = records(path, descriptor, kind, span).window(span)
        compared = partial(
            ways,
            window,
            span,
            readers,
            hint_step=hint_step(place),
            cursor=kind == "lmdb",
            direct=session.direct,
        )
        # how many ways there are does not depend on how long each one runs
        count = len(compared(seconds=1.0))
        each = max(LEAST_SECONDS, seconds / (REPEATS * count) - AROUND_SECONDS)
        say(
            f"comparing {count} ways to read {size(sum(window.sizes))} of {path.name}: {REPEATS} "
            f"rounds, at most {each:.2f} s for each way, about "
            f"{REPEATS * count * (each + AROUND_SECONDS):.0f} s in total"
        )
        measured = compared(seconds=each)
        session.rounds(measured, tell)
        took = time.monotonic() - began

    def of(*groups: str) -> list[Way]:
        return [way for way in measured if way.kind[0] in groups]

    strided = tuple(map(strided_figures, of("strided")))
    shuffled = tuple(map(shuffled_figures, of("shuffled")))
    ceiling = best_ceiling(of("ceiling", "block"))
    present = next(s for s in strided if s.method == "mmap")
    found = io.Experiment(
        path=str(path),
        format=kind,
        size=size_,
        device=place.device,
        readers=tuple(readers),
        records=len(window.sizes),
        mean_size=sum(window.sizes) / len(window.sizes),
        window=span,
        repeats=REPEATS,
        seconds=took,
        cold="posix_fadvise(DONTNEED), checked"
        if session.confirmed
        else "posix_fadvise(DONTNEED), unchecked: this user cannot see the file's page cache",
        ceiling=ceiling,
        strided=strided,
        blocks=tuple(map(block_figures, of("block"))),
        shuffled=shuffled,
        seek=next((seek_figures(window, way, shuffled) for way in of("seek")), None),
        share_of_ceiling=present.throughput.median / max(1.0, ceiling.throughput.median),
    )
    document = io.Io(
        schema=io.SCHEMA,
        created=documents.now(),
        dltune=__version__,
        subject=str(path),
        partial=None,
        storage=(place,),
        watch=None,
        experiment=found,
        findings=(),
        unseen=tuple(_unseen(place, session)),
    )
    return msgspec.structs.replace(document, findings=apply_rules(Evidence(io=document)))


@dataclass
class _Session:
    """`counted`: whether the kernel counts reads from this storage. `confirmed`: that pages were
    gone before each run. `direct`: the file system takes O_DIRECT."""

    path: Path
    descriptor: int
    readers: Readers
    counted: bool
    confirmed: bool = True
    direct: bool = True

    def __post_init__(self) -> None:
        try:
            self.readers.run(Task("direct", 1, [0], [PAGE], 1.0))
        except Refused:
            self.direct = False

    def calibrate(self, seconds: float, size_: int) -> int:
        """Return how much of the file's front to use: as much as the fastest way reads in
        `seconds`, read once so that the machine behind the storage (a host, a server) is as warm
        for each way."""
        self.confirmed = drop(self.path, self.descriptor)
        offsets = range(0, size_, 4 * MIB)
        sizes = [min(offsets.step, size_ - at) for at in offsets]
        task = Task("direct" if self.direct else "pread", 4, offsets, sizes, seconds)
        done = sum(outcome.bytes for outcome in self.readers.run(task))
        return max(min(size_, 8 * MIB), min(size_, int(done * MARGIN)))

    def rounds(self, compared: Sequence[Way], tell: Callable[[str], None]) -> None:
        """Every way once a round, in another order each time, so that the machine's drift hits all
        alike."""
        order = list(compared)
        for turn in range(REPEATS):
            random.Random(turn).shuffle(order)
            for n, way in enumerate(order):
                tell(f"round {turn + 1} of {REPEATS}, way {n + 1} of {len(order)}")
                self._run(way)

    def _run(self, way: Way) -> None:
        self.confirmed &= drop(self.path, self.descriptor)
        outcomes = self.readers.run(way.task)
        came: int | None = sum(outcome.storage for outcome in outcomes)
        if not self.counted:
            # the kernel counts no such reads; pages in the page cache now were not there before
            now = cached(self.descriptor) if way.task.method != "direct" else None
            came = now.now if now else None
        way.outcomes.append(outcomes)
        way.storage.append(came)


def _unseen(place: io.Storage, session: _Session) -> Iterator[str]:
    yield (
        "caches below this kernel (of a disk, a server, a virtual machine's host) cannot be "
        "emptied; the file was read once before, so that they are equally warm for each way"
    )
    if not session.direct:
        yield f"{place.kind} does not support O_DIRECT: all reads went through the page cache"
    if not place.counted:
        yield (
            f"the kernel does not count reads from {place.kind}: bytes from storage are the growth "
            "of the page cache instead"
        )
    if not session.confirmed:
        yield "it is unknown if the reads were cold: this user cannot see the file's page cache"
