"""The tables of a horovod document, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.horovod import Distribution, Evidence, Horovod, Rank, ThreadUse, Timeline
from dltune.machine import cpulist
from dltune.tables import Bar, Cell, Key, Table, columns
from dltune.words import signal_name

# the background thread was found by
EVIDENCE: dict[Evidence, str] = {"init": "hvd.init()", "stack": "stack", "name": "thread name"}


def ranks(report: Horovod) -> Table:
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
            f"CPU {cpulist.show(rank.cpus)}" + (", bound" if rank.bound else ""),
            str(rank.background or "not found"),
            " and ".join(EVIDENCE[found] for found in rank.evidence),
            _ended(rank),
        )
        for rank in report.ranks
    ]
    return Table("ranks", columns(*heads), rows)


def _ended(rank: Rank) -> str:
    if rank.ended_after is None:
        return rank.stuck or ""
    after = f"after {rank.ended_after:.1f} s"
    if rank.ended is None:
        return after
    by = signal_name(-rank.ended) if rank.ended < 0 else f"exit code {rank.ended}"
    return f"{after}, {by}"


def threads(report: Horovod, of_each: int, least: float = 0.0) -> Table:
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
    return Table(f"threads ({len(rows)} of {there}), in shares of a core", columns(*heads), rows)


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
        cpulist.show(thread.cpus),
    )


def cycles(report: Horovod) -> Table:
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
    return Table("cycles of the background threads, in ms", columns(*heads), rows)


def tensors(timeline: Timeline) -> Table:
    """Those that spent most time in negotiation first; their names begin alike: with scopes, and
    what made the gradient."""
    heads = (
        *("tensor", ">count", ">KiB", ">negotiation median", ">p95", ">queue median", ">p95"),
        *(">transfer median", ">p95"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            Key(tensor.name, end=True),
            str(tensor.times),
            "" if tensor.bytes is None else f"{tensor.bytes / 1024:.1f}",
            *(
                ms(value)
                for part in (tensor.negotiation, tensor.queue, tensor.transfer)
                for value in (part.median, part.p95)
            ),
        )
        for tensor in sorted(timeline.tensors, key=lambda t: -(t.negotiation.mean or 0.0) * t.times)
    ]
    return Table("tensors by time in negotiation, in ms", columns(*heads), rows)


def late(timeline: Timeline) -> Table:
    by_share = sorted(timeline.late.items(), key=lambda one: -one[1])
    rows = [(str(rank), f"{share:.1%}", Bar(share)) for rank, share in by_share]
    heads = columns(">rank", ">share of negotiations", "")
    return Table("last rank to join a negotiation", heads, rows, sorted_by=1)


def facts(timeline: Timeline) -> Iterator[str]:
    """What a timeline tells as a whole, a line each."""
    cut = ", last record incomplete" if timeline.truncated else ""
    yield f"timeline {timeline.path}: {timeline.seconds:.1f} s, {timeline.events} events{cut}"
    if cycles := timeline.cycles:
        empty = "" if cycles.empty is None else f", {cycles.empty:.0%} of them empty"
        yield (
            f"{cycles.rate:.0f} cycles/s (cycle time set: {cycles.setting * 1e3:g} ms){empty}; "
            f"time between cycles: median {ms(cycles.period.median)} ms, "
            f"p95 {ms(cycles.period.p95)} ms, max {ms(cycles.period.max)} ms"
        )
    cached = "" if timeline.cached is None else f"; {timeline.cached:.0%} from the response cache"
    fused = timeline.fused.mean
    mean = "" if fused is None else f", {fused:.1f} tensors each on average"
    yield f"{timeline.batches} collectives{mean}{cached}"


def _four(found: Distribution) -> tuple[str, ...]:
    return tuple(ms(value) for value in (found.median, found.p95, found.p99, found.max))


def ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"
