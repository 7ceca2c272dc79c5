"""An io document for people: findings first, then the figures they rest on."""

from __future__ import annotations

import click

from dltune.cli.tables import table
from dltune.documents.io import Experiment, Io, Measured, Process, Thread, Watch
from dltune.io.report.shown import count, file_name, rate, requests, share, size

FILES, THREADS = 12, 12


def show(io: Io) -> None:
    if io.watch:
        _watch(io.watch, io)
    if io.experiment:
        _experiment(io.experiment)
    click.echo("\nwhat follows")
    for finding in io.findings:
        click.echo(f"  {finding.said}")
        click.echo(f"      {finding.evidence}")
        if finding.advice:
            click.echo(f"      -> {finding.advice}")
    if io.unseen:
        click.echo("\nnot seen")
        for sentence in io.unseen:
            click.echo(f"  {sentence}")
    if io.partial:
        click.echo(f"\nthis report is partial: {io.partial}")


def _watch(watch: Watch, io: Io) -> None:
    if watch.files:
        rows = [
            (
                file_name(file.path),
                file.format,
                size(file.size),
                size(file.mapped) if file.mapped else "",
                _known(file.cached, file.size),
                size(file.storage_bytes),
                size(file.asked),
                "?" if file.amplification is None else f"{file.amplification:.2f}",
                file.pattern.kind
                + (f" {size(file.pattern.stride)}" if file.pattern.stride else ""),
                "" if file.major is None else f"{count(file.major)}/{count(file.minor)}",
                "direct" if file.direct else file.advice or "",
            )
            for file in watch.files[:FILES]
        ]
        table(
            f"data files of {io.subject}, {watch.seconds:.0f} s",
            (
                "file",
                "format",
                ">size",
                ">mapped",
                ">cached",
                ">storage",
                ">used",
                ">ratio",
                "access",
                ">faults maj/min",
                "advice",
            ),
            rows,
        )
        if len(watch.files) > FILES:
            click.echo(f"and {len(watch.files) - FILES} more files")
    else:
        click.echo(f"{io.subject}: no data file was seen in {watch.seconds:.0f} s")
    for place in io.storage:
        parts = [f"{place.kind} on {place.source}"]
        if place.read_ahead is not None:
            parts.append(f"read-ahead {size(place.read_ahead)}")
        if place.scheduler:
            parts.append(f"scheduler {place.scheduler}")
        if place.rotational is not None:
            parts.append("rotational" if place.rotational else "not rotational")
        click.echo(f"{place.mount}: {', '.join(parts)}")
    for file in watch.files[:FILES]:
        if file.requests:
            seen = ", ".join(f"{size(r.size)}: {r.seen}" for r in file.requests)
            click.echo(f"read calls of {file_name(file.path)} seen waiting, by size: {seen}")
    _threads(watch)
    for pressure in watch.pressure:
        if pressure.some >= 0.01:
            full = "" if pressure.full is None else f", all {share(pressure.full)}"
            click.echo(
                f"pressure of the {pressure.of} on {pressure.resource}: some "
                f"{share(pressure.some)}{full}"
            )
    if watch.lines:
        click.echo("Python that waits for storage")
        for line in watch.lines[:5]:
            click.echo(f"  {share(line.share):>5} of {line.looks} looks  {line.where}")
    cost = share(watch.cost.share)
    click.echo(
        f"watching took {watch.cost.cpu:.2f} s of CPU in {watch.cost.looks} looks: {cost} of the "
        "job's own CPU time"
    )


def _known(cached: int | None, whole: int) -> str:
    return "?" if cached is None else share(min(1.0, cached / max(1, whole)))


def _threads(watch: Watch) -> None:
    threads = [(p, t) for p in watch.processes for t in p.threads if t.seconds > 0]
    threads.sort(key=lambda one: (-one[1].waiting, -one[1].cpu))
    if not threads:
        return
    table(
        f"\nthreads, {min(THREADS, len(threads))} of {len(threads)} in "
        f"{len(watch.processes)} processes",
        (
            ">pid",
            ">tid",
            "name",
            ">s",
            ">on CPU",
            ">queued",
            ">waits for storage",
            ">asleep of reading",
            ">vol/s",
            ">invol/s",
            ">major",
            ">minor",
        ),
        [_thread(process, thread) for process, thread in threads[:THREADS]],
    )


def _thread(process: Process, thread: Thread) -> tuple[str, ...]:
    seconds = thread.seconds
    return (
        str(process.pid),
        str(thread.tid),
        thread.name,
        f"{seconds:.1f}",
        share(thread.cpu / seconds),
        "?" if thread.queued is None else share(thread.queued / seconds),
        share(thread.waiting / seconds),
        "" if thread.sleep_share is None else share(thread.sleep_share),
        f"{thread.voluntary / seconds:.0f}",
        f"{thread.involuntary / seconds:.0f}",
        count(thread.major),
        count(thread.minor),
    )


def _experiment(experiment: Experiment) -> None:
    click.echo(
        f"{experiment.path}: {experiment.format}, {size(experiment.size)}; windows of "
        f"{experiment.records} records of {size(experiment.mean_size)}, cold "
        f"({experiment.cold}), {experiment.repeats} rounds in turns, {experiment.seconds:.0f} s"
    )
    table(
        "\nreaders that share the records one by one",
        (
            ">readers",
            "way",
            ">throughput",
            ">voluntary switches",
            ">involuntary",
            ">asleep",
            ">major faults",
            ">extra touched",
            ">storage/used",
        ),
        [
            (
                str(run.readers),
                _way(run.method, run.walk),
                _speed(run.throughput),
                _plain(run.switches),
                _plain(run.involuntary),
                share(run.sleep_share.median),
                _plain(run.major),
                f"{run.extra:.2f}",
                "?" if run.storage_bytes is None else f"{run.storage_bytes:.2f}",
            )
            for run in experiment.strided
        ],
    )
    table(
        "\none reader, front to back",
        ("by", ">block", ">throughput", ">voluntary switches", ">asleep"),
        [
            (
                block.method,
                size(block.block),
                _speed(block.throughput),
                _plain(block.switches),
                share(block.sleep_share.median),
            )
            for block in experiment.blocks
        ],
    )
    table(
        "\nrecords in shuffled order, one reader",
        ("by", "told random", ">hints ahead", ">throughput", ">s/record", ">storage/used"),
        [
            (
                run.method,
                "yes" if run.advised else "no",
                str(run.ahead),
                _speed(run.throughput),
                f"{run.latency.median:.2e}",
                "?" if run.storage_bytes is None else f"{run.storage_bytes:.2f}",
            )
            for run in experiment.shuffled
        ],
    )
    if seek := experiment.seek:
        click.echo(
            f"\ncoming to record {seek.passed} from the front: {seek.seconds.median:.3g} s cold, "
            f"{seek.pages:.2f} pages touched a record; by exact offset {seek.by_offset:.2e} s"
        )
    ceiling = experiment.ceiling
    click.echo(
        f"the storage gave at most {_speed(ceiling.throughput)}, by {requests(ceiling)}; one "
        f"reader through a mapping reaches {share(experiment.share_of_ceiling)} of it"
    )


def _way(method: str, walk: str) -> str:
    return f"{method}, {'passes the others' if walk == 'cursor' else 'exact offsets'}"


def _speed(measured: Measured) -> str:
    return f"{rate(measured.median)} ±{measured.spread:.0%}"


def _plain(measured: Measured) -> str:
    return count(measured.median)
