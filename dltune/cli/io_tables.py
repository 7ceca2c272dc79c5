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
from dltune.words import count, file_name, milliseconds, share, size

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
        click.echo(f"{io.subject}: no data file was found in {watch.seconds:.0f} s")
    for storage in io.storage:
        click.echo(f"storage of {storage.mount}: {place(storage)}")
    for file in watch.files[:FILES]:
        if file.requests:
            seen = ", ".join(f"{size(r.size)}: {r.seen} times" for r in file.requests)
            click.echo(
                f"sampled read calls that waited for {file_name(file.path)}, by size: {seen}"
            )
    for table, most in (
        (io_tables.threads(watch), THREADS),
        (io_tables.pressure(watch), None),
        (io_tables.lines(watch), LINES),
    ):
        if table.rows:
            tables.show(table, most)
    cost = share(watch.cost.share)
    click.echo(
        f"\noverhead of the watch: {watch.cost.cpu:.2f} s of CPU time for {watch.cost.looks} "
        f"samples, {cost} of the job's CPU time"
    )


def _experiment(experiment: Experiment) -> None:
    click.echo(
        f"{experiment.path}: {experiment.format}, {size(experiment.size)}\n"
        f"each way read up to {experiment.records} records of {size(experiment.mean_size)} (mean) "
        f"in each of {experiment.repeats} rounds; {experiment.seconds:.0f} s in total\n"
        f"page cache emptied of the file before each run by {experiment.cold}"
    )
    for table in io_tables.ways(experiment):
        tables.show(table)
    if seek := experiment.seek:
        click.echo(
            f"\nreaching record {seek.passed} by stepping from the first record: "
            f"{milliseconds(seek.seconds.median)}, {seek.pages:.2f} pages touched per record; "
            f"by its exact offset: {milliseconds(seek.by_offset)}"
        )
    click.echo(ceiling(experiment))


def watched(watch: Watching) -> str:
    """What was seen so far, in a line."""
    running = sum(not seen.ended for seen in watch.processes.values())
    return (
        f"{watch.ended - watch.began:.0f} s: {running} process{'es' * (running != 1)}, "
        f"{len(watch.files.known)} data files, {watch.looks} samples"
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
    heads = columns("file", "format", ">size", ">in the page cache", ">from storage")
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
    heads = columns(">pid", "thread", ">waiting", ">voluntary switches", ">major faults")
    return Table("threads that wait for storage", heads, rows)
