"""A horovod document as people see it: the threads of each rank, cycles, and Horovod's timeline."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from dltune.base.formatting import Bar, Cell, Key, Shares, Table, columns, counted, signal_name
from dltune.findings.diagnosis import to_sentence
from dltune.system import kernel_files
from dltune.systems.ranks.horovod.schema import (
    Distribution,
    Evidence,
    Horovod,
    Rank,
    Role,
    ThreadUse,
    Timeline,
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

# the background thread was found by
EVIDENCE: dict[Evidence, str] = {"init": "hvd.init()", "stack": "stack", "name": "thread name"}
# the parts of a rank's time, in the order of the picture
ROLES: tuple[Role, ...] = ("background", "helper", "compute", "input", "python", "other")
# on a terminal: threads of a rank, without those that use less than LITTLE of a core and do not
# wait; tensors of a timeline; ranks that were late
THREADS, LITTLE, TENSORS, LATE = 8, 0.001, 8, 8
# on a page: threads of all ranks, and at least of each; tensors
THREADS_ON_PAGE, LEAST, TENSORS_ON_PAGE = 200, 8, 200


def view(report: Horovod, _: Context) -> View:
    unseen = {f"rank {rank.rank}: {text}" for rank in report.ranks for text in rank.unseen}
    found = Findings(report.findings)
    sections = [Section("findings", "Horovod", on_page(found))]
    if report.ranks:
        sections.append(Section("ranks", "Ranks and their threads", list(_watched(report))))
    if (cycles := _cycles(report)).rows:
        sections.append(Section("cycles", "Cycles", [cycles]))
    if report.timeline:
        sections.append(Section("timeline", "Timeline", list(_timeline(report.timeline))))
    closing: list[Piece] = [found, Unobserved(sorted(unseen))]
    if report.watching is not None:
        closing.insert(0, f"overhead of the watch: {report.watching:.1%} of one CPU")
    if report.partial:
        closing += ["", "this report is partial: the watch was interrupted"]
    sections.append(Section("closing", "", on_terminal(*closing)))
    return View(
        title="Horovod",
        head=[
            *([("command", shlex.join(report.command))] if report.command else []),
            *((host, f"{cores} cores") for host, cores in report.cores.items()),
            ("made", f"{report.created}, dltune {report.dltune}"),
        ],
        sections=sections,
        headlines=[Headline(2, to_sentence(finding.title)) for finding in report.findings[:1]],
        remarks=[
            *(["This report is partial: the watch was interrupted."] if report.partial else []),
            *(f"Rank {rank.rank}: {text}" for rank in report.ranks for text in rank.unseen),
        ],
    )


def _watched(report: Horovod) -> Iterator[Piece]:
    for host, cores in report.cores.items():
        here = [rank for rank in report.ranks if rank.host == host]
        wanted = sum(rank.wanting for rank in here)
        yield from on_terminal(
            f"{host}: {counted(len(here), 'rank')} on {counted(cores, 'core')}; on average "
            f"{wanted:.1f} threads want to run at the same time"
        )
    most = max(rank.cpu for rank in report.ranks)
    for rank in report.ranks:
        title = f"Rank {rank.rank}: {rank.cpu:.2f} cores"
        yield Shares(title, _parts(rank, max(most, 1e-9)))
    yield _ranks(report)
    yield from on_terminal(_threads(report, THREADS, LITTLE))
    yield from on_page(_threads(report, max(LEAST, THREADS_ON_PAGE // len(report.ranks))))


def _parts(rank: Rank, most: float) -> list[tuple[str, float]]:
    """Return shares of the busiest rank's time; the rest is time of threads that ended between
    samples."""
    parts = []
    for role in ROLES:
        cpu = sum(thread.cpu for thread in rank.threads if thread.role == role)
        if cpu > 0:
            parts.append((f"{role}: {cpu:.0%} of a core", cpu / most))
    return parts


def _timeline(timeline: Timeline) -> Iterator[Piece]:
    yield from on_terminal("")
    yield from _facts(timeline)
    if timeline.late:
        yield _late(timeline)
    if timeline.tensors:
        yield _tensors(timeline)


def _ranks(report: Horovod) -> Table:
    library = " or ".join(dict.fromkeys(rank.library for rank in report.ranks)) or "Horovod"
    heads = (
        *(">rank", "+host", ">pid", "controller", library, "MPI", ">watched s", ">CPU", "allowed"),
        *("background thread", "found by", "ended"),
    )
    rows = [
        (
            f"{rank.rank} of {rank.size}",
            rank.host,
            str(rank.pid),
            rank.controller or "?",
            rank.pytorch or rank.horovod or "?",
            rank.mpi or "",
            f"{rank.seconds:.1f}",
            f"{rank.cpu:.0%}",
            f"CPU {kernel_files.format_cpulist(rank.cpus)}" + (", bound" if rank.bound else ""),
            str(rank.background or "not found"),
            " and ".join(EVIDENCE[found] for found in rank.evidence),
            _ended(rank),
        )
        for rank in report.ranks
    ]
    return Table("ranks", columns(*heads), rows, name="ranks-table")


def _ended(rank: Rank) -> str:
    if rank.ended_after is None:
        return rank.stuck or ""
    after = f"after {rank.ended_after:.1f} s"
    if rank.ended is None:
        return after
    by = signal_name(-rank.ended) if rank.ended < 0 else f"exit code {rank.ended}"
    return f"{after}, {by}"


def _threads(report: Horovod, of_each: int, least: float = 0.0) -> Table:
    """By rank the background thread, then `of_each` of those that want a core most, and want at
    least `least` of one."""
    heads = (
        *(">rank", ">tid", "role", "name", ">CPU", "", ">of rank's CPU", ">user", ">system"),
        *(">waits for a core", ">voluntary switches/s", ">involuntary/s", "allowed CPUs"),
    )
    rows = [
        _thread(rank, thread) for rank in report.ranks for thread in _shown(rank, of_each, least)
    ]
    there = sum(len(rank.threads) for rank in report.ranks)
    title = f"threads ({len(rows)} of {there}), in shares of a core"
    return Table(title, columns(*heads), rows, name="threads-table")


def _shown(rank: Rank, most: int, least: float) -> Iterator[ThreadUse]:
    def want(thread: ThreadUse) -> float:
        return thread.cpu + (thread.wait or 0.0)

    others = [t for t in rank.threads if t.tid != rank.background and want(t) >= least]
    yield from (thread for thread in rank.threads if thread.tid == rank.background)
    yield from sorted(others, key=want, reverse=True)[:most]


def _thread(rank: Rank, thread: ThreadUse) -> tuple[Cell, ...]:
    return (
        str(rank.rank),
        str(thread.tid),
        thread.role,
        thread.name,
        f"{thread.cpu:.1%}",
        Bar(thread.cpu),
        f"{thread.cpu / rank.cpu:.0%}" if rank.cpu else "",
        f"{thread.user:.1%}",
        f"{thread.system:.1%}",
        "?" if thread.wait is None else f"{thread.wait:.1%}",
        f"{thread.voluntary:.0f}",
        f"{thread.involuntary:.0f}",
        kernel_files.format_cpulist(thread.cpus),
    )


def _cycles(report: Horovod) -> Table:
    heads = (
        *(">rank", ">cycle time set", ">cycles/s", ">period median", ">p95", ">p99", ">max"),
        *(">oversleep median", ">p95", ">p99", ">max"),
    )
    rows = [
        (
            str(rank.rank),
            f"{rank.cycles.setting * 1e3:g}",
            f"{rank.cycles.rate:.0f}",
            *_four(rank.cycles.period),
            *_four(rank.cycles.oversleep or Distribution(0)),
        )
        for rank in report.ranks
        if rank.cycles
    ]
    title = "cycles of the background threads, in ms"
    return Table(title, columns(*heads), rows, name="cycles-table")


def _tensors(timeline: Timeline) -> Table:
    """Those that spent most time in negotiation first; their names begin alike: with scopes, and
    what made the gradient."""
    names = (
        *("tensor", ">count", ">KiB", ">negotiation median", ">p95", ">queue median", ">p95"),
        *(">transfer median", ">p95"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            Key(tensor.name, end=True),
            str(tensor.times),
            "" if tensor.bytes is None else f"{tensor.bytes / 1024:.1f}",
            *(
                _ms(value)
                for part in (tensor.negotiation, tensor.queue, tensor.transfer)
                for value in (part.median, part.p95)
            ),
        )
        for tensor in sorted(timeline.tensors, key=lambda t: -(t.negotiation.mean or 0.0) * t.times)
    ]
    title, heads = "tensors by time in negotiation, in ms", columns(*names)
    return Table(
        title, heads, rows, name="tensors-table", most=TENSORS, most_on_page=TENSORS_ON_PAGE
    )


def _late(timeline: Timeline) -> Table:
    by_share = sorted(timeline.late.items(), key=lambda one: -one[1])
    rows = [(str(rank), f"{share:.1%}", Bar(share)) for rank, share in by_share]
    heads = columns(">rank", ">share of negotiations", "")
    return Table("last rank to join a negotiation", heads, rows, 1, "late-table", most=LATE)


def _facts(timeline: Timeline) -> Iterator[str]:
    """Yield a line for each property of the whole timeline."""
    cut = ", last record incomplete" if timeline.truncated else ""
    yield f"timeline {timeline.path}: {timeline.seconds:.1f} s, {timeline.events} events{cut}"
    if cycles := timeline.cycles:
        empty = "" if cycles.empty is None else f", {cycles.empty:.0%} of them empty"
        yield (
            f"{cycles.rate:.0f} cycles/s (cycle time set: {cycles.setting * 1e3:g} ms){empty}; "
            f"time between cycles: median {_ms(cycles.period.median)} ms, "
            f"p95 {_ms(cycles.period.p95)} ms, max {_ms(cycles.period.max)} ms"
        )
    cached = "" if timeline.cached is None else f"; {timeline.cached:.0%} from the response cache"
    fused = timeline.fused.mean
    mean = "" if fused is None else f", {fused:.1f} tensors each on average"
    yield f"{timeline.batches} collectives{mean}{cached}"


def _four(found: Distribution) -> tuple[str, ...]:
    return tuple(_ms(value) for value in (found.median, found.p95, found.p99, found.max))


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"
