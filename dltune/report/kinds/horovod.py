"""Horovod's ranks: what follows, the threads of each, cycles, and Horovod's own timeline."""

from __future__ import annotations

import shlex

from dltune.documents.horovod import Distribution, Horovod, Rank, Role, Timeline, load
from dltune.machine import cpulist
from dltune.report.charts.bars import bar, divided
from dltune.report.markup import Markup, joined, short, tag
from dltune.report.section import Context, Finding, Loaded, Section, Shown
from dltune.report.table import table

__all__ = ["load", "show"]

# the parts of a rank's time, in the order of the picture
ROLES: tuple[Role, ...] = ("background", "helper", "compute", "input", "python", "other")
THREADS, TENSORS = 200, 200  # in the tables


def show(loaded: Loaded, _: Context) -> Shown:
    report = loaded.document
    assert isinstance(report, Horovod)
    at = loaded.prefix
    sections = [Section(f"{at}-findings", "Horovod", _findings(report))]
    if report.ranks:
        sections.append(Section(f"{at}-ranks", "Ranks and their threads", _ranks(report, at)))
    if any(rank.cycles for rank in report.ranks):
        sections.append(Section(f"{at}-cycles", "Cycles", _cycles(report, at)))
    if report.timeline:
        sections.append(Section(f"{at}-timeline", "Timeline", _timeline(report.timeline, at)))
    return Shown(
        title=f"Horovod {loaded.path.name}",
        head=[
            *([("command", shlex.join(report.command))] if report.command else []),
            *((host, f"{cores} cores") for host, cores in report.cores.items()),
            ("made", f"{report.created}, dltune {report.dltune}"),
        ],
        sections=sections,
        findings=[Finding(2, _sentence(finding.told)) for finding in report.findings[:1]],
        remarks=[
            *(["This report is partial: the watch was interrupted."] if report.partial else []),
            *(f"Rank {rank.rank}: {text}" for rank in report.ranks for text in rank.unseen),
        ],
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _findings(report: Horovod) -> Markup:
    if not report.findings:
        return tag("p", "Nothing was found to be wrong.")
    return tag(
        "ol",
        *(
            tag(
                "li",
                tag("p", tag("b", _sentence(f.told)), " ", _sentence(f.evidence)),
                tag("p", _sentence(f.remedy)),
            )
            for f in report.findings
        ),
    )


def _ranks(report: Horovod, at: str) -> Markup:
    most = max(rank.cpu for rank in report.ranks)
    pictures = [
        tag(
            "figure",
            tag("figcaption", f"Rank {rank.rank}: {rank.cpu:.2f} cores"),
            divided(_parts(rank, max(most, 1e-9))),
        )
        for rank in report.ranks
    ]
    heads = (
        *(">rank", "host", ">pid", "controller", "Horovod", "MPI", ">seconds", ">cores used"),
        *("may use", ">background thread", "found by", "ended"),
    )
    rows = [
        (
            str(rank.rank),
            short(rank.host),
            str(rank.pid),
            rank.controller or "?",
            rank.horovod or "?",
            rank.mpi or "",
            f"{rank.seconds:.1f}",
            f"{rank.cpu:.2f}",
            f"CPU {cpulist.show(rank.cpus)}" + (", bound" if rank.bound else ""),
            str(rank.background or ""),
            " and ".join(rank.evidence),
            "" if rank.ended_after is None else f"after {rank.ended_after:.1f} s: {rank.ended}",
        )
        for rank in report.ranks
    ]
    return joined(
        [
            *pictures,
            table(f"{at}-ranks-table", "Ranks", heads, rows),
            _threads(report, at),
        ]
    )


def _parts(rank: Rank, most: float) -> list[tuple[str, float]]:
    """Shares of the busiest rank's time; what ended threads took between looks is the rest."""
    parts = []
    for role in ROLES:
        cpu = sum(thread.cpu for thread in rank.threads if thread.role == role)
        if cpu > 0:
            parts.append((f"{role}: {cpu:.0%} of a core", cpu / most))
    return parts


def _threads(report: Horovod, at: str) -> Markup:
    threads = sorted(
        ((rank, thread) for rank in report.ranks for thread in rank.threads),
        key=lambda one: -one[1].cpu,
    )[:THREADS]
    rows = [
        (
            str(rank.rank),
            str(thread.tid),
            thread.role,
            short(thread.name),
            f"{thread.cpu:.4f}",
            bar(thread.cpu),
            f"{thread.user:.4f}",
            f"{thread.system:.4f}",
            "" if thread.wait is None else f"{thread.wait:.4f}",
            f"{thread.voluntary:.0f}",
            f"{thread.involuntary:.0f}",
            cpulist.show(thread.cpus),
        )
        for rank, thread in threads
    ]
    heads = (
        *(">rank", ">tid", "role", "name", ">of a core", "", ">user", ">system"),
        *(">waits for a core", ">voluntary/s", ">involuntary/s", "may use"),
    )
    return table(
        f"{at}-threads-table", "Threads, by their share of a core", heads, rows, sorted_by=4
    )


def _cycles(report: Horovod, at: str) -> Markup:
    heads = (
        *(">rank", ">asked ms", ">a second", ">period median ms", ">p95", ">p99", ">max"),
        *(">oversleep median ms", ">p95", ">p99", ">max"),
    )
    rows = [
        (
            str(rank.rank),
            f"{rank.cycles.setting * 1e3:g}",
            f"{rank.cycles.rate:.0f}",
            *_four(rank.cycles.period),
            *(("",) * 4 if rank.cycles.oversleep is None else _four(rank.cycles.oversleep)),
        )
        for rank in report.ranks
        if rank.cycles
    ]
    return table(f"{at}-cycles-table", "Cycles of the background threads", heads, rows)


def _four(found: Distribution) -> tuple[str, ...]:
    return tuple(_ms(value) for value in (found.median, found.p95, found.p99, found.max))


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"


def _timeline(timeline: Timeline, at: str) -> Markup:
    facts = [
        f"{timeline.seconds:.1f} s, {timeline.events} events, {timeline.batches} collectives",
    ]
    if timeline.fused.mean is not None:
        facts.append(f"{timeline.fused.mean:.1f} tensors in each on average")
    if timeline.cached is not None:
        facts.append(f"{timeline.cached:.0%} of requests from the response cache")
    if cycles := timeline.cycles:
        empty = "" if cycles.empty is None else f", {cycles.empty:.0%} of them empty"
        facts.append(f"{cycles.rate:.0f} cycles/s{empty}")
    late = [
        (str(rank), f"{share:.4f}", bar(share))
        for rank, share in sorted(timeline.late.items(), key=lambda one: -one[1])
    ]
    tensors = sorted(timeline.tensors, key=lambda t: -(t.negotiation.mean or 0.0) * t.times)
    rows = [
        (
            tag("span", short(tensor.name), class_="key"),
            str(tensor.times),
            "" if tensor.bytes is None else f"{tensor.bytes / 1024:.1f}",
            _ms(tensor.negotiation.median),
            _ms(tensor.negotiation.p95),
            _ms(tensor.queue.median),
            _ms(tensor.queue.p95),
            _ms(tensor.transfer.median),
            _ms(tensor.transfer.p95),
        )
        for tensor in tensors[:TENSORS]
    ]
    heads = (
        *("tensor", ">times", ">KiB", ">negotiation ms", ">p95", ">queue ms", ">p95"),
        *(">transfer ms", ">p95"),
    )
    body = [tag("p", _sentence("; ".join(facts)))]
    if late:
        caption = "The last to join, by share of negotiations"
        body.append(table(f"{at}-late-table", caption, (">rank", ">share", ""), late))
    if rows:
        caption = "Tensors, by their time in negotiation"
        body.append(table(f"{at}-tensors-table", caption, heads, rows))
    return joined(body)
