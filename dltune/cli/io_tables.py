"""An io document for people: the figures, and what follows from them."""

from __future__ import annotations

import click

from dltune.cli import findings, tables
from dltune.documents.io import Experiment, Io, Watch
from dltune.io.report import tables as io_tables
from dltune.io.report.shown import ceiling, file_name, place, share, size

FILES, THREADS, LINES = 12, 12, 5


def show(io: Io) -> None:
    if io.watch:
        _watch(io.watch, io)
    if io.experiment:
        _experiment(io.experiment)
    findings.show(((f.said, f.evidence, f.advice) for f in io.findings), io.unseen)
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
