"""Reading on a terminal: a job while it is watched; and an io document, its figures and what
follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dltune.cli import results, tables
from dltune.documents.io import Experiment, Io, Watch
from dltune.io.report import tables as io_tables
from dltune.io.report.shown import ceiling, place
from dltune.tables import Table, columns
from dltune.words import count, file_name, share, size

if TYPE_CHECKING:
    from dltune.io.report.watch import Watch as Watching

FILES, THREADS, LINES = 12, 12, 5
ROWS = 8  # while it is watched


def show(io: Io) -> None:
    if io.watch:
        _watch(io.watch, io)
    if io.experiment:
        _experiment(io.experiment)
    results.show_findings(io.findings, io.unseen)
    if io.partial:
        click.echo(f"\nthis report is partial: {io.partial}")


def _watch(watch: Watch, io: Io) -> None:
    if watch.files:
        tables.show(io_tables.files(io, watch), FILES)
    else:
        click.echo(f"{io.subject}: no data file was seen in {watch.seconds:.0f} s")
    for storage in io.storage:
        click.echo(f"{storage.mount}: {place(storage)}")
    for file in watch.files[:FILES]:
        if file.requests:
            seen = ", ".join(f"{size(r.size)}: {r.seen}" for r in file.requests)
            click.echo(f"read calls of {file_name(file.path)} seen waiting, by size: {seen}")
    for table, most in (
        (io_tables.threads(watch), THREADS),
        (io_tables.pressure(watch), None),
        (io_tables.lines(watch), LINES),
    ):
        if table.rows:
            tables.show(table, most)
    cost = share(watch.cost.share)
    click.echo(
        f"\nwatching took {watch.cost.cpu:.2f} s of CPU in {watch.cost.looks} looks: {cost} of the "
        "job's own CPU time"
    )


def _experiment(experiment: Experiment) -> None:
    click.echo(
        f"{experiment.path}: {experiment.format}, {size(experiment.size)}; windows of "
        f"{experiment.records} records of {size(experiment.mean_size)}, cold "
        f"({experiment.cold}), {experiment.repeats} rounds in turns, {experiment.seconds:.0f} s"
    )
    for table in io_tables.ways(experiment):
        tables.show(table)
    if seek := experiment.seek:
        click.echo(
            f"\ncoming to record {seek.passed} from the front: {seek.seconds.median:.3g} s cold, "
            f"{seek.pages:.2f} pages touched a record; by exact offset {seek.by_offset:.2e} s"
        )
    click.echo(ceiling(experiment))


def watched(watch: Watching) -> str:
    """What was seen so far, in a line."""
    running = sum(not seen.ended for seen in watch.processes.values())
    return (
        f"{watch.ended - watch.began:.0f} s: {running} process{'es' * (running != 1)}, "
        f"{len(watch.files.known)} data files, {watch.looks} looks"
    )


def open_files(watch: Watching) -> Table:
    """The data files seen so far, and how much of each came from storage."""
    known = sorted(watch.files.known.values(), key=lambda file: -(file.came or 0))
    rows = [
        (
            file_name(file.path),
            file.format,
            size(file.size),
            "?" if file.last is None else share(file.last.now / max(1, file.size)),
            size(file.came or 0),
        )
        for file in known[:ROWS]
    ]
    heads = columns("file", "format", "size", "in the page cache", "came from storage")
    return Table("data files", heads, rows)


def waiting(watch: Watching) -> Table:
    """The threads that have waited for storage so far, the longest first."""
    seen = [
        (process, tid, thread)
        for process in watch.processes.values()
        for (tid, _), thread in process.threads.items()
        if thread.waited
    ]
    seen.sort(key=lambda one: -one[2].waited)
    rows = [
        (
            str(process.pid),
            f"{tid} {thread.last.stat.name}",
            share(min(1.0, thread.waited / max(1e-9, thread.until - thread.since))),
            count(thread.last.voluntary - thread.first.voluntary),
            count(thread.last.stat.major - thread.first.stat.major),
        )
        for process, tid, thread in seen[:ROWS]
    ]
    heads = columns("pid", "thread", "waits", "switches", "major faults")
    return Table("threads that wait for storage", heads, rows)
