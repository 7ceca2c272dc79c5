"""What follows from a report: what is wrong, the figures that say so, and the change to make.

The thesis finds the background thread busy-waiting inside MPI_Allreduce for 60 to 90 % of the time
(section 6.2.5) while the threads that compute want its core; what it names, is looked for here.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import msgspec

from dltune.documents.horovod import Cycles, Finding, Horovod, Rank, ThreadUse, Timeline
from dltune.horovod.watch.roles import WRITER
from dltune.job import lost

# a thread that blocks when it has nothing to do takes a few % of a core for 1,000 cycles a second;
# one that takes more than this, more than three quarters of it in user space, waits by spinning
SPINS, IN_USER = 0.15, 0.75
# share of time ready without a core: above it a thread's work is late by more than a tenth
WAITS = 0.10
# threads that want a core, over cores: up to here ranks need not take turns
CROWDED = 1.25
# how late one sleep in twenty is, as a share of HOROVOD_CYCLE_TIME (of a millisecond at least: less
# is a timer's slack), so that a cycle takes half as long again
OVERSLEPT, LEAST_CYCLE = 0.5, 1e-3
# sleeps of which one in twenty is more than one or two
MANY_SLEEPS = 60
# cycles that transfer nothing
EMPTY = 0.95
# a cycle over a batch's transfer, beyond which it is the waiting for a cycle that takes time
LONG_CYCLE = 2.0
# tensors in a batch below which fusion does little, and bytes below which latency is all
FEW_TENSORS, SMALL_BATCH = 4.0, 64 << 10
# share of negotiations for which one rank was the last, over its even share
ALWAYS_LATE = 1.5
# a rank's CPU time over the median of ranks; shares of cores below which nothing can be told
UNEVEN, IDLE = 1.3, 0.05


def diagnose(report: Horovod) -> Horovod:
    """The report with its findings, the gravest first."""
    found: list[tuple[float, Finding]] = []
    for one in (
        _ended(report),
        _stuck(report),
        _versions(report),
        _absent(report),
        _bound(report),
        _spinning(report),
        _crowded(report),
        _waiting(report),
        _oversleep(report),
        _uneven(report),
        _of_timeline(report),
        _blind(report),
    ):
        found += one
    if not found and report.ranks:
        found.append((0.0, _well(report)))
    ordered = sorted(found, key=lambda one: -one[0])
    return msgspec.structs.replace(report, findings=tuple(finding for _, finding in ordered))


def _ended(report: Horovod) -> Iterator[tuple[float, Finding]]:
    dead = sorted(
        (rank for rank in report.ranks if rank.ended_after is not None and rank.ended != 0),
        key=lambda rank: rank.ended_after or 0.0,
    )
    failed = [rank for rank in dead if rank.ended is not None or rank.error or len(dead) > 1]
    if not failed:
        return
    # an exception that Horovod raises because another rank is gone is not the cause
    own = [rank for rank in failed if not _of_horovod(rank)]
    first = (own or failed)[0]
    rest = [rank for rank in failed if rank is not first]
    how = f"rank {first.rank} (pid {first.pid} on {first.host}) {_how(first)}"
    told = "; ".join(
        f"rank {rank.rank} {_how(rank)} "
        f"{(rank.ended_after or 0.0) - (first.ended_after or 0.0):+.2f} s later"
        for rank in rest
    )
    yield (
        100.0,
        Finding(
            f"rank {first.rank} failed first" + (", the others followed" if rest else ""),
            how + f" after {first.ended_after or 0.0:.1f} s" + (f"; {told}" if told else ""),
            f"look for the cause in rank {first.rank}'s output"
            + (": what the others say is about its absence" if rest else ""),
        ),
    )


def _of_horovod(rank: Rank) -> bool:
    return rank.error is not None and lost.tells_of_another(rank.error)


def _how(rank: Rank) -> str:
    if rank.error:
        return f"fell by {rank.error}"
    if rank.ended is None:
        return "ended"
    if rank.ended < 0:
        import signal

        try:
            return f"was ended by {signal.Signals(-rank.ended).name}"
        except ValueError:
            return f"was ended by signal {-rank.ended}"
    return f"ended with exit code {rank.ended}"


def _stuck(report: Horovod) -> Iterator[tuple[float, Finding]]:
    stuck = [rank for rank in report.ranks if rank.stuck]
    if not stuck:
        return
    names = _names(stuck)
    yield (
        90.0,
        Finding(
            f"{names} {'hangs' if len(stuck) == 1 else 'hang'}, and the others wait for it",
            "; ".join(f"rank {rank.rank}: {rank.stuck}" for rank in stuck),
            "look where it stands: py-spy dump --nonblocking --pid "
            + " or ".join(str(rank.pid) for rank in stuck[:4]),
        ),
    )


def _versions(report: Horovod) -> Iterator[tuple[float, Finding]]:
    for what in ("horovod", "mpi"):
        found: dict[str, list[Rank]] = {}
        for rank in report.ranks:
            if version := getattr(rank, what):
                found.setdefault(version, []).append(rank)
        if len(found) > 1:
            name = "Horovod" if what == "horovod" else "MPI"
            yield (
                80.0,
                Finding(
                    f"ranks run different versions of {name}",
                    "; ".join(f"{version}: {_names(of)}" for version, of in found.items()),
                    "install one version everywhere: their messages need not mean the same",
                ),
            )


def _absent(report: Horovod) -> Iterator[tuple[float, Finding]]:
    if not report.ranks:
        return
    size = max(rank.size for rank in report.ranks)
    missing = sorted(set(range(size)) - {rank.rank for rank in report.ranks})
    if missing:
        shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        yield (
            1.0,
            Finding(
                f"{len(missing)} of {size} ranks are not in this report",
                f"rank{'s' * (len(missing) > 1)} {shown}",
                "make a report on each host at the same time (--pid), and put them together: "
                "dltune horovod-report --merge a.json b.json",
            ),
        )


def _bound(report: Horovod) -> Iterator[tuple[float, Finding]]:
    bound = [rank for rank in report.ranks if rank.bound and rank.local_size > 1]
    tight = [rank for rank in bound if len(rank.cpus) < _wanting(rank)]
    if not tight:
        return
    worst = min(tight, key=lambda rank: len(rank.cpus))
    cpus = len(worst.cpus)
    yield (
        70.0,
        Finding(
            f"{_names(tight)} {'is' if len(tight) == 1 else 'are'} bound to "
            f"{'one core' if cpus == 1 else f'{cpus} CPUs'}"
            f"{'' if len(tight) == 1 else ' each'}, and want{'s' * (len(tight) == 1)} more",
            f"rank {worst.rank} may use CPU {', '.join(map(str, worst.cpus))} alone; its threads "
            f"take {worst.cpu:.2f} of it and wait for {_queued(worst):.2f} more",
            "mpirun binds up to two ranks to a core each unless told otherwise: start it with "
            "--bind-to none, or with a rankfile (dltune plan allreduce)"
            if worst.controller == "mpi"
            else "start the job without binding (taskset, srun --cpu-bind=none)",
        ),
    )


def _wanting(rank: Rank) -> float:
    """Cores that the rank's threads would fill: those they have and those they wait for."""
    return rank.cpu + _queued(rank)


def _queued(rank: Rank) -> float:
    return sum(thread.wait or 0.0 for thread in rank.threads)


def background(rank: Rank) -> ThreadUse | None:
    return next((t for t in rank.threads if t.tid == rank.background), None)


def _spinning(report: Horovod) -> Iterator[tuple[float, Finding]]:
    spinning = [
        (rank, thread)
        for rank in report.ranks
        if (thread := background(rank))
        and thread.cpu > SPINS
        and thread.user > IN_USER * thread.cpu
    ]
    if not spinning:
        return
    rank, thread = max(spinning, key=lambda one: one[1].cpu)
    starved = sum(t.wait or 0.0 for t in rank.threads if t.role == "compute")
    wait = f"; its compute threads wait for {starved:.2f} of a core meanwhile" if starved else ""
    yield (
        60.0,
        Finding(
            f"the background thread of {_names([one for one, _ in spinning])} spins: up to "
            f"{thread.cpu:.0%} of a core",
            f"rank {rank.rank}: thread {thread.tid}, {thread.user / thread.cpu:.0%} of it in user "
            f"space, {thread.cpu / max(rank.cpu, 1e-9):.0%} of what the rank uses{wait}",
            "MPI polls while it waits for the other ranks: let dltune plan allreduce put short "
            "sleeps in its place (NBCS), or set OMPI_MCA_mpi_yield_when_idle=1"
            if rank.controller == "mpi"
            else "gloo does not spin: longer cycles (HOROVOD_CYCLE_TIME) or larger bins give it "
            "less to do",
        ),
    )


def _spins(thread: ThreadUse) -> bool:
    return thread.cpu > SPINS and thread.user > IN_USER * thread.cpu


def _crowded(report: Horovod) -> Iterator[tuple[float, Finding]]:
    for host, cores in report.cores.items():
        here = [rank for rank in report.ranks if rank.host == host]
        wanted = sum(_wanting(rank) for rank in here)
        if not here or wanted <= CROWDED * cores:
            continue
        runnable = [t for rank in here for t in rank.threads if t.cpu + (t.wait or 0) > IDLE]
        input_ = sum(t.cpu + (t.wait or 0) for t in runnable if t.role == "input")
        yield (
            50.0,
            Finding(
                f"more threads want to run on {host} than it has cores: {wanted:.1f} at a time on "
                f"{cores}",
                f"{len(runnable)} threads of {len(here)} ranks run or wait more than {IDLE:.0%} of "
                f"the time (input pipelines want {input_:.1f} cores); together they run "
                f"{sum(rank.cpu for rank in here):.1f} and wait for "
                f"{sum(_queued(rank) for rank in here):.1f}",
                f"give each rank its part: about {max(1, cores // len(here))} intra-op thread"
                f"{'s' * (cores // len(here) > 1)} each (dltune plan allreduce)",
            ),
        )


def _waiting(report: Horovod) -> Iterator[tuple[float, Finding]]:
    waits = [
        (rank, thread)
        for rank in report.ranks
        if (thread := background(rank)) and thread.wait is not None and thread.wait > WAITS
    ]
    if waits:
        rank, thread = max(waits, key=lambda one: one[1].wait or 0.0)
        yield (
            55.0,
            Finding(
                f"the background thread of {_names([one for one, _ in waits])} waits for a core: "
                f"up to {thread.wait:.0%} of the time",
                f"rank {rank.rank}: thread {thread.tid} runs {thread.cpu:.0%} of the time and "
                f"is ready for {thread.wait:.0%} more, {thread.involuntary:.0f} involuntary "
                "switches/s; whoever sends gradients with it waits too",
                "give it a core, or a part of one, of its own: dltune plan allreduce (SCP), or "
                "HOROVOD_THREAD_AFFINITY",
            ),
        )


def _oversleep(report: Horovod) -> Iterator[tuple[float, Finding]]:
    late = [
        (slept.p95, rank, rank.cycles, slept)
        for rank in report.ranks
        if rank.cycles
        and (slept := rank.cycles.oversleep)
        and slept.samples >= MANY_SLEEPS
        and slept.p95 is not None
        and slept.p95 > OVERSLEPT * max(rank.cycles.setting, LEAST_CYCLE)
    ]
    if not late:
        return
    p95, rank, cycles, slept = max(late, key=lambda one: one[0])
    yield (
        40.0,
        Finding(
            f"the background thread of {_names([one[1] for one in late])} oversleeps: one sleep in "
            f"twenty by more than {p95 * 1e3:.1f} ms",
            f"rank {rank.rank}, {slept.samples} sleeps: it runs {(slept.median or 0) * 1e3:.2f} ms "
            f"late in the median, {(slept.max or 0) * 1e3:.1f} ms at most; HOROVOD_CYCLE_TIME is "
            f"{cycles.setting * 1e3:g} ms; in the next collective all ranks wait for it",
            "give the background thread a core of its own (SCP), or have all ranks sleep alike "
            "(GS): dltune plan allreduce",
        ),
    )


def _uneven(report: Horovod) -> Iterator[tuple[float, Finding]]:
    compute = {
        rank.rank: sum(t.cpu for t in rank.threads if t.role in ("compute", "input", "python"))
        for rank in report.ranks
    }
    if len(compute) < 2 or report.partial:
        return
    middle = statistics.median_low(compute.values())
    most = max(compute, key=lambda rank: compute[rank])
    if middle > IDLE and compute[most] > UNEVEN * middle:
        yield (
            30.0,
            Finding(
                f"rank {most} works more than the others",
                f"its threads that compute, read and run Python use {compute[most]:.2f} cores, "
                f"the median of ranks {middle:.2f}; the others wait for it in every step",
                "give ranks equal batches and equal cores, and keep what rank 0 alone does "
                "(logging, checkpoints) short",
            ),
        )


def _of_timeline(report: Horovod) -> Iterator[tuple[float, Finding]]:
    timeline = report.timeline
    if timeline is None:
        return
    if timeline.truncated:
        yield (
            20.0,
            Finding(
                "the timeline ends in the middle of a record",
                f"{timeline.path}: {timeline.events} events before it are whole, "
                f"{timeline.seconds:.1f} s",
                "the job was ended while it wrote: its figures stand for the time before",
            ),
        )
    yield from _late(timeline)
    yield from _batches(timeline)
    if timeline.cycles:
        yield from _cycle_time(timeline, timeline.cycles)
    writers = [
        (rank, thread) for rank in report.ranks for thread in rank.threads if thread.name == WRITER
    ]
    for rank, thread in writers:
        yield (
            5.0,
            Finding(
                f"recording the timeline takes {thread.cpu:.0%} of a core of rank {rank.rank}",
                f"thread {thread.tid} writes it, and asks for more without rest",
                "switch it off (HOROVOD_TIMELINE) when step times are to be measured",
            ),
        )


def _late(timeline: Timeline) -> Iterator[tuple[float, Finding]]:
    if len(timeline.late) < 2:
        return
    rank, share = max(timeline.late.items(), key=lambda one: one[1])
    even = 1.0 / len(timeline.late)
    if share > min(ALWAYS_LATE * even, 0.9) and timeline.negotiation.samples >= 20:
        yield (
            45.0,
            Finding(
                f"rank {rank} is the last to have its gradients {share:.0%} of the time",
                f"of {timeline.negotiation.samples} negotiations; evenly it would be {even:.0%}; "
                f"they take {_ms(timeline.negotiation.median)} in the median, "
                f"{_ms(timeline.negotiation.p95)} at the 95th percentile",
                "find what it does besides: its input, its core's other users, its batch",
            ),
        )


def _batches(timeline: Timeline) -> Iterator[tuple[float, Finding]]:
    fused, sizes = timeline.fused.mean, [t.bytes for t in timeline.tensors if t.bytes is not None]
    if fused is None or timeline.batches < 50 or not sizes:
        return
    each = fused * statistics.fmean(sizes)
    if fused < FEW_TENSORS and each < SMALL_BATCH and len(timeline.tensors) > FEW_TENSORS:
        yield (
            35.0,
            Finding(
                "gradients travel in small batches",
                f"{timeline.batches} collectives of {fused:.1f} tensors and about "
                f"{each / 1024:.0f} KiB in the mean, each {_ms(timeline.transfer.median)}",
                "let more of them come together: bins in the order of the graph (TOPO: dltune plan "
                "allreduce), or a longer HOROVOD_CYCLE_TIME",
            ),
        )


def _cycle_time(timeline: Timeline, cycles: Cycles) -> Iterator[tuple[float, Finding]]:
    transfer, queue = timeline.transfer.median, timeline.queue.median
    if cycles.empty is not None and cycles.empty > EMPTY and cycles.rate > 200:
        yield (
            25.0,
            Finding(
                f"{cycles.empty:.0%} of cycles transfer nothing",
                f"{cycles.rate:.0f} cycles/s at HOROVOD_CYCLE_TIME {cycles.setting * 1e3:g} ms, "
                "and each asks every rank what it has",
                "make cycles longer: HOROVOD_CYCLE_TIME in milliseconds (dltune plan allreduce "
                "says how long)",
            ),
        )
    if (
        transfer
        and cycles.setting > LONG_CYCLE * transfer
        and queue is not None
        and queue > 0.5 * cycles.setting
    ):
        yield (
            25.0,
            Finding(
                "gradients wait for the next cycle longer than they travel",
                f"HOROVOD_CYCLE_TIME is {cycles.setting * 1e3:g} ms, a transfer takes "
                f"{_ms(transfer)} and its turn comes after {_ms(queue)}",
                "make cycles shorter: a lower HOROVOD_CYCLE_TIME",
            ),
        )


def _blind(report: Horovod) -> Iterator[tuple[float, Finding]]:
    blind = [rank for rank in report.ranks if rank.background is None]
    if blind:
        yield (
            75.0,
            Finding(
                f"no background thread was found in {_names(blind)}",
                "; ".join(f"rank {rank.rank}: {' '.join(rank.unseen) or '?'}" for rank in blind),
                "watch it while it trains, after hvd.init()",
            ),
        )


def _well(report: Horovod) -> Finding:
    threads = [thread for rank in report.ranks if (thread := background(rank))]
    cpu = max((thread.cpu for thread in threads), default=0.0)
    wait = max((thread.wait or 0.0 for thread in threads), default=0.0)
    return Finding(
        "Horovod's background threads hold nothing up",
        f"the busiest takes {cpu:.1%} of a core, and waits for one {wait:.1%} of the time at most",
        "look at the ops next: dltune profile",
    )


def _names(ranks: Sequence[Rank]) -> str:
    numbers = [str(rank.rank) for rank in ranks]
    if len(numbers) > 6:
        return f"{len(numbers)} ranks ({', '.join(numbers[:5])}, ...)"
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(numbers)}"


def _ms(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds * 1e3:.3g} ms"
