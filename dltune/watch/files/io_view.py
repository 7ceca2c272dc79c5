"""The view of an io document: data files, threads that wait, and the ways to read a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from dltune.base.formatting import (
    Bar,
    Cell,
    Figure,
    Key,
    Table,
    columns,
    count,
    file_name,
    milliseconds,
    rate,
    share,
    size,
)
from dltune.findings.diagnosis import to_sentence
from dltune.schemas.io import (
    Experiment,
    Io,
    Measured,
    Process,
    Storage,
    Thread,
    Watch,
)
from dltune.views import (
    Context,
    Findings,
    Headline,
    Piece,
    Section,
    Unobserved,
    View,
    on_page,
    on_terminal,
)

METHODS = {"mmap": "mmap", "pread": "pread", "direct": "O_DIRECT"}
# rows on a terminal and on a page
FILES, THREADS, LINES = 12, 12, 5
ROWS = 100


def view(io: Io, _: Context) -> View:
    found = Findings(io.findings)
    sections = [Section("findings", "Reading data", on_page(found))]
    if watch := io.watch:
        sections += [
            Section("files", "Data files", list(_data_files(io, watch))),
            Section("threads", "Waiting", list(_waiting(watch))),
        ]
    if io.experiment:
        sections.append(Section("ways", "Ways to read the file", list(_compared(io.experiment))))
    partial = ["", f"this report is partial: {io.partial}"] if io.partial else []
    sections.append(Section("closing", "", on_terminal(found, Unobserved(io.unseen), *partial)))
    return View(
        title="I/O",
        head=[
            ("subject", io.subject),
            *((storage.mount, place(storage)) for storage in io.storage),
            ("made", f"{io.created}, dltune {io.dltune}"),
        ],
        sections=sections,
        # a sentence of its own beside those on ops: reading is another cause
        headlines=[Headline(2, to_sentence(finding.title)) for finding in io.findings[:1]],
        remarks=[
            *([] if io.partial is None else [f"This report is partial: {io.partial}."]),
            *io.unseen,
        ],
    )


def _data_files(io: Io, watch: Watch) -> Iterator[Piece]:
    if watch.files:
        yield _files(io, watch)
    else:
        yield from on_page(_files(io, watch))
        seconds = f"{watch.seconds:.0f} s"
        yield from on_terminal(f"{io.subject}: no data file was found in {seconds}")
    for storage in io.storage:
        yield from on_terminal(f"storage of {storage.mount}: {place(storage)}")
    for file in watch.files[:FILES]:
        if file.requests:
            seen = ", ".join(f"{size(r.size)}: {r.seen} times" for r in file.requests)
            name = file_name(file.path)
            yield from on_terminal(f"sampled read calls that waited for {name}, by size: {seen}")


def _waiting(watch: Watch) -> Iterator[Piece]:
    threads, lines, pressure = _threads(watch), _lines(watch), _pressure(watch)
    if threads.rows:
        yield threads
    if pressure.rows:
        yield from on_terminal(pressure)
    if lines.rows:
        yield lines
    if pressure.rows:
        yield from on_page(pressure)
    cost = watch.cost
    yield from on_terminal(
        "",
        f"overhead of the watch: {cost.cpu:.2f} s of CPU time for {cost.looks} samples, "
        f"{share(cost.share)} of the job's CPU time",
    )


def _compared(experiment: Experiment) -> Iterator[Piece]:
    yield from on_page(to_sentence(ceiling(experiment)))
    yield from on_terminal(
        f"{experiment.path}: {experiment.format}, {size(experiment.size)}",
        f"each way read up to {experiment.records} records of {size(experiment.mean_size)} (mean) "
        f"in each of {experiment.repeats} rounds; {experiment.seconds:.0f} s in total",
        f"page cache emptied of the file before each run by {experiment.cold}",
    )
    yield from _ways(experiment)
    if seek := experiment.seek:
        yield from on_terminal(
            "",
            f"reaching record {seek.passed} by stepping from the first record: "
            f"{milliseconds(seek.seconds.median)}, {seek.pages:.2f} pages touched per record; "
            f"by its exact offset: {milliseconds(seek.by_offset)}",
        )
    yield from on_terminal(ceiling(experiment))


def _files(io: Io, watch: Watch) -> Table:
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
    title = f"data files of {io.subject} in {watch.seconds:.0f} s"
    return Table(title, columns(*heads), rows, name="files-table", most=FILES)


def _threads(watch: Watch) -> Table:
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
    rows = [_thread(*one) for one in found]
    return Table(title, heads, rows, 4, "threads-table", most=THREADS, most_on_page=ROWS)


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


def _lines(watch: Watch) -> Table:
    rows = [(share(line.share), str(line.looks), Key(line.where)) for line in watch.lines]
    heads = columns(">share of samples", ">samples", "line")
    title = "Python lines that waited for storage"
    return Table(title, heads, rows, name="waits-table", most=LINES, most_on_page=ROWS)


def _pressure(watch: Watch) -> Table:
    rows = [
        (one.of, one.resource, f"{one.some:.1%}", "" if one.full is None else f"{one.full:.1%}")
        for one in watch.pressure
    ]
    heads = columns("scope", "resource", ">some tasks waited", ">all tasks waited")
    title = "pressure: share of time in which tasks waited"
    return Table(title, heads, rows, name="pressure-table", most_on_page=ROWS)


def _ways(experiment: Experiment) -> list[Table]:
    """Return a table for each kind of reading that was measured."""
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
    filled = [table for table in tables if table.rows]
    return [replace(table, name=f"ways{number}-table") for number, table in enumerate(filled)]


def _told(write: Callable[[float | None], str], value: float | None) -> Figure:
    return Figure(write(value), value)


def ceiling(experiment: Experiment) -> str:
    """Return the highest rate of the storage, and the share that today's way of reading reaches."""
    most = experiment.ceiling
    return (
        f"the fastest reading was {rate(most.throughput.median)} ±{most.throughput.spread:.0%} "
        f"({most.requests}); one reader through a memory mapping reaches "
        f"{share(experiment.share_of_ceiling)} of that"
    )


def place(storage: Storage) -> str:
    """Return the kind of a storage and its properties."""
    parts = [f"{storage.kind} on {storage.source}"]
    if storage.read_ahead is not None:
        parts.append(f"read-ahead {size(storage.read_ahead)}")
    if storage.scheduler:
        parts.append(f"scheduler {storage.scheduler}")
    if storage.rotational is not None:
        parts.append("rotational" if storage.rotational else "not rotational")
    return ", ".join(parts)
