"""A horovod document for people: ranks, threads, the timeline, and what follows."""

from __future__ import annotations

from collections.abc import Iterator

import click

from dltune.cli.tables import table
from dltune.documents.horovod import Distribution, Horovod, Rank, ThreadUse, Timeline

# threads shown of a rank, tensors of a timeline
THREADS, TENSORS = 8, 8
# letters of a tensor's name
NAME = 48
# of a core: threads that use less and do not wait are left out
LITTLE = 0.001


def show(report: Horovod) -> None:
    if report.ranks:
        _ranks(report)
        _threads(report)
        _cycles(report)
    if report.timeline:
        _timeline(report.timeline)
    if report.watching is not None:
        click.echo(f"watching took {report.watching:.1%} of one CPU")
    click.echo("\nwhat follows")
    for finding in report.findings:
        click.echo(f"  {finding.told}")
        click.echo(f"      {finding.evidence}")
        click.echo(f"      -> {finding.remedy}")
    if not report.findings:
        click.echo("  nothing was found to be wrong")
    unseen = sorted({f"rank {rank.rank}: {text}" for rank in report.ranks for text in rank.unseen})
    if unseen:
        click.echo("\nnot seen")
        for sentence in unseen:
            click.echo(f"  {sentence}")
    if report.partial:
        click.echo("\nthis report is partial: the watch was interrupted")


def _ranks(report: Horovod) -> None:
    for host, cores in report.cores.items():
        here = [rank for rank in report.ranks if rank.host == host]
        wanted = sum(rank.cpu + sum(t.wait or 0.0 for t in rank.threads) for rank in here)
        click.echo(
            f"{host}: {len(here)} rank{'s' * (len(here) != 1)} on {cores} cores; threads that want "
            f"to run: {wanted:.1f} at a time"
        )
    table(
        "\nranks",
        (
            *(">rank", ">pid", "controller", "Horovod", "MPI", ">s", ">CPU", "may use"),
            *("background thread", "found by", "ended"),
        ),
        [
            (
                f"{rank.rank} of {rank.size}",
                str(rank.pid),
                rank.controller or "?",
                rank.horovod or "?",
                rank.mpi or "",
                f"{rank.seconds:.1f}",
                f"{rank.cpu:.0%}",
                _cpus(rank),
                str(rank.background or "not found"),
                " and ".join(rank.evidence),
                _ended(rank),
            )
            for rank in report.ranks
        ],
    )


def _cpus(rank: Rank) -> str:
    from dltune.machine import cpulist

    return f"CPU {cpulist.show(frozenset(rank.cpus))}" + (", bound" if rank.bound else "")


def _ended(rank: Rank) -> str:
    if rank.ended_after is None:
        return rank.stuck or ""
    return f"after {rank.ended_after:.1f} s" + ("" if rank.ended is None else f": {rank.ended}")


def _threads(report: Horovod) -> None:
    rows = [_thread(rank, thread) for rank in report.ranks for thread in _shown(rank)]
    table(
        f"\nthreads, {len(rows)} of {sum(len(rank.threads) for rank in report.ranks)}: shares of "
        "a core",
        (
            *(">rank", ">tid", "role", "name", ">CPU", ">of rank", ">user", ">system"),
            *(">waits for a core", ">vol/s", ">invol/s", "may use"),
        ),
        rows,
    )


def _shown(rank: Rank) -> Iterator[ThreadUse]:
    """The background thread first, then those that want a core most."""
    mine = [thread for thread in rank.threads if thread.tid == rank.background]
    others = [
        thread
        for thread in rank.threads
        if thread.tid != rank.background and thread.cpu + (thread.wait or 0.0) >= LITTLE
    ]
    yield from mine
    yield from sorted(others, key=lambda t: -(t.cpu + (t.wait or 0.0)))[:THREADS]


def _thread(rank: Rank, thread: ThreadUse) -> tuple[str, ...]:
    from dltune.machine import cpulist

    return (
        str(rank.rank),
        str(thread.tid),
        thread.role,
        thread.name,
        f"{thread.cpu:.1%}",
        f"{thread.cpu / rank.cpu:.0%}" if rank.cpu else "",
        f"{thread.user:.1%}",
        f"{thread.system:.1%}",
        "?" if thread.wait is None else f"{thread.wait:.1%}",
        f"{thread.voluntary:.0f}",
        f"{thread.involuntary:.0f}",
        cpulist.show(frozenset(thread.cpus)),
    )


def _cycles(report: Horovod) -> None:
    rows = [
        (
            str(rank.rank),
            f"{rank.cycles.setting * 1e3:g}",
            f"{rank.cycles.rate:.0f}",
            *_three(rank.cycles.period),
            *(("", "", "") if rank.cycles.oversleep is None else _three(rank.cycles.oversleep)),
        )
        for rank in report.ranks
        if rank.cycles
    ]
    if rows:
        table(
            "\ncycles of the background threads, ms",
            (
                *(">rank", ">asked", ">a second", ">period median", ">p95", ">max"),
                *(">oversleep median", ">p95", ">max"),
            ),
            rows,
        )


def _end(name: str) -> str:
    """Names of tensors begin alike: scopes, and what made the gradient."""
    return name if len(name) <= NAME else "…" + name[1 - NAME :]


def _three(found: Distribution) -> tuple[str, str, str]:
    return _ms(found.median), _ms(found.p95), _ms(found.max)


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.2f}"


def _timeline(timeline: Timeline) -> None:
    click.echo(
        f"\ntimeline {timeline.path}: {timeline.seconds:.1f} s, {timeline.events} events"
        + (", cut off in a record" if timeline.truncated else "")
    )
    if cycles := timeline.cycles:
        empty = "" if cycles.empty is None else f", {cycles.empty:.0%} of them empty"
        click.echo(
            f"{cycles.rate:.0f} cycles/s of at least {cycles.setting * 1e3:g} ms{empty}; from one "
            f"to the next {_ms(cycles.period.median)} ms at the median, "
            f"{_ms(cycles.period.p95)} at the 95th percentile, {_ms(cycles.period.max)} at most"
        )
    cached = "" if timeline.cached is None else f"; {timeline.cached:.0%} from the response cache"
    mean = "" if timeline.fused.mean is None else f" of {timeline.fused.mean:.1f} tensors"
    click.echo(f"{timeline.batches} collectives{mean} on average{cached}")
    if timeline.late:
        shares = ", ".join(f"rank {rank} {share:.0%}" for rank, share in timeline.late.items())
        click.echo(f"last to join a negotiation: {shares}")
    rows = [
        (
            _end(tensor.name),
            str(tensor.times),
            "" if tensor.bytes is None else f"{tensor.bytes / 1024:.1f}",
            *(
                text
                for part in (tensor.negotiation, tensor.queue, tensor.transfer)
                for text in (_ms(part.median), _ms(part.p95))
            ),
        )
        for tensor in sorted(
            timeline.tensors, key=lambda t: -(t.negotiation.mean or 0.0) * t.times
        )[:TENSORS]
    ]
    if rows:
        table(
            f"\ntensors by time in negotiation, {len(rows)} of {len(timeline.tensors)}, ms",
            (
                *("tensor", ">times", ">KiB", ">negotiation", ">p95", ">queue", ">p95"),
                *(">transfer", ">p95"),
            ),
            rows,
        )
