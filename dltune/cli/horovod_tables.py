"""A horovod document on a terminal: the figures, then what follows from them."""

from __future__ import annotations

import click

from dltune.cli import findings
from dltune.cli.tables import show as draw
from dltune.documents.horovod import Horovod
from dltune.horovod import tables

# threads shown of a rank, tensors of a timeline, ranks that were late
THREADS, TENSORS, LATE = 8, 8, 8
# of a core: threads that use less and do not wait are left out
LITTLE = 0.001


def show(report: Horovod) -> None:
    if report.ranks:
        _cores(report)
        draw(tables.ranks(report))
        draw(tables.threads(report, THREADS, LITTLE))
        if (cycles := tables.cycles(report)).rows:
            draw(cycles)
    if timeline := report.timeline:
        click.echo("")
        for line in tables.facts(timeline):
            click.echo(line)
        for table, most in ((tables.late(timeline), LATE), (tables.tensors(timeline), TENSORS)):
            if table.rows:
                draw(table, most)
    if report.watching is not None:
        click.echo(f"watching took {report.watching:.1%} of one CPU")
    unseen = {f"rank {rank.rank}: {text}" for rank in report.ranks for text in rank.unseen}
    found = [(f.told, f.evidence, f.remedy) for f in report.findings]
    findings.show(found or [("nothing that is wrong", None, None)], sorted(unseen))
    if report.partial:
        click.echo("\nthis report is partial: the watch was interrupted")


def _cores(report: Horovod) -> None:
    for host, cores in report.cores.items():
        here = [rank for rank in report.ranks if rank.host == host]
        wanted = sum(rank.cpu + sum(t.wait or 0.0 for t in rank.threads) for rank in here)
        click.echo(
            f"{host}: {len(here)} rank{'s' * (len(here) != 1)} on {cores} cores; threads that want "
            f"to run: {wanted:.1f} at a time"
        )
