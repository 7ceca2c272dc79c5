"""Figures of the runs of each way: medians over rounds, with their spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from dltune.documents import io
from dltune.io.report.experiments.readers import Outcome, Task
from dltune.io.report.experiments.records import Records
from dltune.io.report.experiments.ways import Kind, Way
from dltune.stats.samples import relative_spread

MIB = 1 << 20
PAGE = 4096


@dataclass
class Runs:
    """The runs of one way; `storage`: bytes that came from storage, None where nobody tells."""

    outcomes: list[list[Outcome]] = field(default_factory=list)
    storage: list[int | None] = field(default_factory=list)


def _measured(values: Sequence[float]) -> io.Measured:
    return io.Measured(median(values), relative_spread(values), len(values))


def _throughput(outcomes: Sequence[Outcome]) -> float:
    """Bytes a second of all readers together."""
    began = min(outcome.began for outcome in outcomes)
    ended = max(outcome.ended for outcome in outcomes)
    return sum(outcome.bytes for outcome in outcomes) / max(1e-9, ended - began)


def _per_mib(runs: Runs, field: str) -> io.Measured:
    return _measured(
        [
            sum(getattr(o, field) for o in outcomes) / max(1, sum(o.bytes for o in outcomes)) * MIB
            for outcomes in runs.outcomes
        ]
    )


def _asleep(runs: Runs) -> io.Measured:
    """The share of the readers' time together."""
    shares = []
    for outcomes in runs.outcomes:
        total = sum(o.seconds for o in outcomes)
        shares.append(sum(o.asleep * o.seconds for o in outcomes) / total)
    return _measured(shares)


def _storage_share(runs: Runs) -> float | None:
    """Bytes from storage for each byte read."""
    shares = [
        came / max(1, sum(o.bytes for o in outcomes))
        for came, outcomes in zip(runs.storage, runs.outcomes, strict=True)
        if came is not None
    ]
    return median(shares) if shares else None


def strided(way: Way, runs: Runs) -> io.Strided:
    task = way.task
    return io.Strided(
        readers=task.readers,
        walk=task.walk,
        method=task.method,
        throughput=_measured([_throughput(outcomes) for outcomes in runs.outcomes]),
        switches=_per_mib(runs, "voluntary"),
        involuntary=_per_mib(runs, "involuntary"),
        sleep_share=_asleep(runs),
        major=_per_mib(runs, "major"),
        extra=extra(task),
        storage_bytes=_storage_share(runs),
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


def block(way: Way, runs: Runs) -> io.Block:
    return io.Block(
        method=way.task.method,
        block=way.task.sizes[0],
        throughput=_measured([_throughput(outcomes) for outcomes in runs.outcomes]),
        switches=_per_mib(runs, "voluntary"),
        sleep_share=_asleep(runs),
    )


def shuffled(way: Way, runs: Runs) -> io.Random:
    return io.Random(
        method=way.task.method,
        advised=way.task.advised,
        ahead=way.task.ahead,
        throughput=_measured([_throughput(outcomes) for outcomes in runs.outcomes]),
        latency=_measured([o.seconds / max(1, o.records) for (o,) in runs.outcomes]),
        storage_bytes=_storage_share(runs),
    )


def seek(records: Records, runs: Runs, shuffled: Sequence[io.Random]) -> io.Seek:
    """`by_offset`: a record in the middle of nowhere by one read call."""
    passed = max(1, round(median([o.passed for (o,) in runs.outcomes])))
    pages = len({offset // PAGE for offset in records.offsets[:passed]})
    straight = next(run for run in shuffled if run.method == "pread")
    return io.Seek(
        passed=passed,
        seconds=_measured([o.seconds for (o,) in runs.outcomes]),
        pages=pages / passed,
        by_offset=straight.latency.median,
    )


def ceiling(compared: Sequence[Way], runs: Mapping[Kind, Runs]) -> io.Ceiling:
    """The best of all ways that read straight on, in parallel or alone."""
    best = None
    for way in compared:
        if way.kind[0] not in ("ceiling", "block"):
            continue
        throughput = _measured([_throughput(outcomes) for outcomes in runs[way.kind].outcomes])
        if best is None or throughput.median > best.throughput.median:
            best = io.Ceiling(way.task.method, way.task.sizes[0], way.task.readers, throughput)
    assert best is not None
    return best
