"""The tables of an io document, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Callable

from dltune.documents.io import Experiment, Io, Measured, Process, Thread, Watch
from dltune.tables import Bar, Cell, Figure, Key, Table, columns
from dltune.words import count, rate, share, size

METHODS = {"mmap": "mmap", "pread": "pread", "direct": "O_DIRECT"}


def files(io: Io, watch: Watch) -> Table:
    heads = (
        *("file", "format", ">size", ">mapped", ">cached", ">from storage", ">used"),
        *(">storage/used", "access", ">major faults", ">minor faults", "advice"),
    )
    rows = [
        (
            Key(file.path, end=True),
            file.format,
            _told(size, file.size),
            _told(size, file.mapped) if file.mapped else "",
            "?" if file.cached is None else share(min(1.0, file.cached / max(1, file.size))),
            _told(size, file.storage_bytes),
            _told(size, file.asked),
            "?" if file.amplification is None else f"{file.amplification:.2f}",
            file.pattern.kind + (f" {size(file.pattern.stride)}" if file.pattern.stride else ""),
            "" if file.major is None else _told(count, file.major),
            "" if file.minor is None else _told(count, file.minor),
            "direct" if file.direct else file.advice or "",
        )
        for file in watch.files
    ]
    return Table(f"data files of {io.subject} in {watch.seconds:.0f} s", columns(*heads), rows)


def threads(watch: Watch) -> Table:
    """Those that waited longest for storage first."""
    found = [(p, t) for p in watch.processes for t in p.threads if t.seconds > 0]
    found.sort(key=lambda one: (-one[1].waiting, -one[1].cpu))
    heads = columns(
        *(">pid", ">tid", "thread", ">watched s", "+>waiting s", ">waits for storage", ""),
        *(">on CPU", "+>in the kernel", ">waits for a core", ">asleep in reads"),
        *(">voluntary switches/s", ">involuntary/s", ">major faults", ">minor faults"),
    )
    processes = f"{len(watch.processes)} process{'es' * (len(watch.processes) != 1)}"
    title = f"threads of {processes}, by time asleep for storage"
    return Table(title, heads, [_thread(*one) for one in found], sorted_by=4)


def _thread(process: Process, thread: Thread) -> tuple[Cell, ...]:
    seconds = thread.seconds
    return (
        str(process.pid),
        str(thread.tid),
        thread.name,
        f"{seconds:.1f}",
        f"{thread.waiting:.3f}",
        share(thread.waiting / seconds),
        Bar(thread.waiting / seconds),
        share(thread.cpu / seconds),
        share(thread.kernel / seconds),
        "?" if thread.queued is None else share(thread.queued / seconds),
        "" if thread.sleep_share is None else share(thread.sleep_share),
        f"{thread.voluntary / seconds:.0f}",
        f"{thread.involuntary / seconds:.0f}",
        _told(count, thread.major),
        _told(count, thread.minor),
    )


def lines(watch: Watch) -> Table:
    rows = [(share(line.share), str(line.looks), Key(line.where)) for line in watch.lines]
    heads = columns(">share of samples", ">samples", "line")
    return Table("Python lines that waited for storage", heads, rows)


def pressure(watch: Watch) -> Table:
    rows = [
        (one.of, one.resource, f"{one.some:.1%}", "" if one.full is None else f"{one.full:.1%}")
        for one in watch.pressure
    ]
    heads = columns("scope", "resource", ">some tasks waited", ">all tasks waited")
    return Table("pressure: share of time in which tasks waited", heads, rows)


def ways(experiment: Experiment) -> list[Table]:
    """A table for each kind of reading that was measured."""
    measured = [
        experiment.ceiling.throughput,
        *(run.throughput for run in experiment.strided),
        *(run.throughput for run in experiment.blocks),
        *(run.throughput for run in experiment.shuffled),
    ]
    most = max(one.median for one in measured)

    def speed(measured: Measured) -> tuple[Cell, Cell]:
        text = f"{rate(measured.median)} ±{measured.spread:.0%}"
        return Figure(text, measured.median), Bar(measured.median / most if most > 0 else 0.0)

    tables = (
        Table(
            "several readers, which take the records in turn (strided)",
            columns(
                *(">readers", "method", ">throughput", "", ">voluntary switches/MiB"),
                *(">involuntary/MiB", ">asleep", ">major faults/MiB", ">extra touched/used"),
                ">storage/used",
            ),
            [
                (
                    str(run.readers),
                    f"{METHODS[run.method]}, "
                    f"{'LMDB cursor' if run.walk == 'cursor' else 'exact offsets'}",
                    *speed(run.throughput),
                    _told(count, run.switches.median),
                    _told(count, run.involuntary.median),
                    share(run.sleep_share.median),
                    _told(count, run.major.median),
                    f"{run.extra:.2f}",
                    "?" if run.storage_bytes is None else f"{run.storage_bytes:.2f}",
                )
                for run in experiment.strided
            ],
        ),
        Table(
            "one reader, front to back",
            columns(
                *("method", ">request", ">throughput", "", ">voluntary switches/MiB", ">asleep")
            ),
            [
                (
                    METHODS[run.method],
                    _told(size, run.block),
                    *speed(run.throughput),
                    _told(count, run.switches.median),
                    share(run.sleep_share.median),
                )
                for run in experiment.blocks
            ],
        ),
        Table(
            "records in shuffled order, one reader",
            columns(
                *("method", "random advice", ">records hinted ahead", ">throughput", ""),
                *(">µs/record", ">storage/used"),
            ),
            [
                (
                    METHODS[run.method],
                    "yes" if run.advised else "no",
                    str(run.ahead),
                    *speed(run.throughput),
                    f"{run.latency.median * 1e6:.1f}",
                    "?" if run.storage_bytes is None else f"{run.storage_bytes:.2f}",
                )
                for run in experiment.shuffled
            ],
        ),
    )
    return [table for table in tables if table.rows]


def _told(write: Callable[[float | None], str], value: float | None) -> Figure:
    return Figure(write(value), value)
