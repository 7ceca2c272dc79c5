"""Ranks on a terminal: while they are watched; and a horovod document, the figures, then what
follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dltune.cli import results
from dltune.cli.tables import show as draw
from dltune.documents.horovod import Horovod
from dltune.horovod import tables
from dltune.tables import Table, columns

if TYPE_CHECKING:
    from dltune.horovod.watch.rank_seen import RankSeen
    from dltune.horovod.watch.watch import Watch

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
        click.echo(f"overhead of the watch: {report.watching:.1%} of one CPU")
    unseen = {f"rank {rank.rank}: {text}" for rank in report.ranks for text in rank.unseen}
    results.show_findings(report.findings, sorted(unseen))
    if report.partial:
        click.echo("\nthis report is partial: the watch was interrupted")


def _cores(report: Horovod) -> None:
    for host, cores in report.cores.items():
        here = [rank for rank in report.ranks if rank.host == host]
        wanted = sum(rank.wanting for rank in here)
        there = f"{len(here)} rank{'s' * (len(here) != 1)} on {cores} core{'s' * (cores != 1)}"
        click.echo(f"{host}: {there}; on average {wanted:.1f} threads want to run at the same time")


def watched(watch: Watch) -> str:
    """What was found so far, in a line."""
    seen = watch.of_job()
    found = sum(rank.background is not None for rank in seen)
    stuck = "".join(
        f"; rank {rank.identity.rank} hangs: {watch.stuck[rank.pid]}"
        for rank in seen
        if rank.pid in watch.stuck
    )
    return (
        f"{watch.ended - watch.began:.0f} s: {len(seen)} rank{'s' * (len(seen) != 1)}, "
        f"{found} background thread{'s' * (found != 1)} found, {len(watch.looked)} "
        f"processes{stuck}"
    )


def running(watch: Watch) -> Table:
    """What each rank's threads use so far."""
    heads = (
        *("rank", "pid", "CPU", "background thread", "its CPU", "its wait for a core"),
        *("compute CPU", "input CPU"),
    )
    rows = [_row(rank) for rank in watch.of_job()]
    return Table("", columns(*(f">{head}" for head in heads)), rows)


def _row(rank: RankSeen) -> tuple[str, ...]:
    seconds = max(rank.until - rank.since, 1e-9)
    roles = {"compute": 0.0, "input": 0.0}
    cpu = wait = None
    for (tid, _), thread in rank.threads.items():
        used = thread.used()
        if tid == rank.background:
            cpu, wait = used.cpu / seconds, (used.queued or 0.0) / seconds
        elif thread.identity and thread.identity.role in roles:
            roles[thread.identity.role] += used.cpu / seconds
    return (
        str(rank.identity.rank),
        str(rank.pid) if rank.ended_at is None else f"{rank.pid} ended",
        f"{(rank.cpu[1] - rank.cpu[0]) / seconds:.0%}",
        str(rank.background or "not found"),
        "" if cpu is None else f"{cpu:.1%}",
        "" if wait is None else f"{wait:.1%}",
        f"{roles['compute']:.0%}",
        f"{roles['input']:.0%}",
    )
