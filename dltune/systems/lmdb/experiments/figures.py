"""Figures of the runs of each way: medians over rounds, with their spread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from dltune.schemas import io
from dltune.stats import relative_spread
from dltune.systems.lmdb.experiments.readers import Task
from dltune.systems.lmdb.experiments.records import Records
from dltune.systems.lmdb.experiments.ways import Way

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


def strided(way: Way) -> io.Strided:
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
        extra=extra(task),
        storage_bytes=_storage_share(way),
    )


def extra(task: Task) -> float:
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


def block(way: Way) -> io.Block:
    return io.Block(
        method=way.task.method,
        block=way.task.sizes[0],
        throughput=_throughput(way),
        switches=_per_mib(way, "voluntary"),
        sleep_share=_asleep(way),
    )


def shuffled(way: Way) -> io.Random:
    return io.Random(
        method=way.task.method,
        advised=way.task.advised,
        ahead=way.task.ahead,
        throughput=_throughput(way),
        latency=_measured([o.seconds / max(1, o.records) for (o,) in way.outcomes]),
        storage_bytes=_storage_share(way),
    )


def seek(records: Records, way: Way, shuffled: Iterable[io.Random]) -> io.Seek:
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


def ceiling(straight: Iterable[Way]) -> io.Ceiling:
    """The best of the ways that read straight on, in parallel or alone."""
    ceilings = (
        io.Ceiling(way.task.method, way.task.sizes[0], way.task.readers, _throughput(way))
        for way in straight
    )
    return max(ceilings, key=lambda one: one.throughput.median)
