"""Cores: who spins on them, who waits for them, who has too few or works too much.

The thesis finds the background thread busy-waiting inside MPI_Allreduce for 60 to 90 % of the time
(section 6.2.5) while the threads that compute want its core; what it names, is looked for here.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from dltune.documents.horovod import Finding, Horovod
from dltune.horovod.diagnosis.ranks import background, names, queued, wanting

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
# a rank's CPU time over the median of ranks; shares of cores below which nothing can be told
UNEVEN, IDLE = 1.3, 0.05


def bound(report: Horovod) -> Iterator[Finding]:
    tight = [
        rank
        for rank in report.ranks
        if rank.bound and rank.local_size > 1 and len(rank.cpus) < wanting(rank)
    ]
    if not tight:
        return
    worst = min(tight, key=lambda rank: len(rank.cpus))
    cpus = len(worst.cpus)
    yield Finding(
        f"{names(tight)} {'is' if len(tight) == 1 else 'are'} bound to "
        f"{'one core' if cpus == 1 else f'{cpus} CPUs'}"
        f"{'' if len(tight) == 1 else ' each'}, and want{'s' * (len(tight) == 1)} more",
        f"rank {worst.rank} may use CPU {', '.join(map(str, worst.cpus))} alone; its threads "
        f"take {worst.cpu:.2f} of it and wait for {queued(worst):.2f} more",
        "mpirun binds up to two ranks to a core each unless told otherwise: start it with "
        "--bind-to none, or with a rankfile (dltune plan allreduce)"
        if worst.controller == "mpi"
        else "start the job without binding (taskset, srun --cpu-bind=none)",
    )


def spinning(report: Horovod) -> Iterator[Finding]:
    spinners = [
        (rank, thread)
        for rank in report.ranks
        if (thread := background(rank))
        and thread.cpu > SPINS
        and thread.user > IN_USER * thread.cpu
    ]
    if not spinners:
        return
    rank, thread = max(spinners, key=lambda one: one[1].cpu)
    starved = sum(t.wait or 0.0 for t in rank.threads if t.role == "compute")
    wait = f"; its compute threads wait for {starved:.2f} of a core meanwhile" if starved else ""
    yield Finding(
        f"the background thread of {names([one for one, _ in spinners])} spins: up to "
        f"{thread.cpu:.0%} of a core",
        f"rank {rank.rank}: thread {thread.tid}, {thread.user / thread.cpu:.0%} of it in user "
        f"space, {thread.cpu / max(rank.cpu, 1e-9):.0%} of what the rank uses{wait}",
        "MPI polls while it waits for the other ranks: let dltune plan allreduce put short "
        "sleeps in its place (NBCS), or set OMPI_MCA_mpi_yield_when_idle=1"
        if rank.controller == "mpi"
        else "gloo does not spin: longer cycles (HOROVOD_CYCLE_TIME) or larger bins give it "
        "less to do",
    )


def crowded(report: Horovod) -> Iterator[Finding]:
    for host, cores in report.cores.items():
        here = [rank for rank in report.ranks if rank.host == host]
        wanted = sum(wanting(rank) for rank in here)
        if not here or wanted <= CROWDED * cores:
            continue
        runnable = [t for rank in here for t in rank.threads if t.cpu + (t.wait or 0) > IDLE]
        input_ = sum(t.cpu + (t.wait or 0) for t in runnable if t.role == "input")
        yield Finding(
            f"more threads want to run on {host} than it has cores: {wanted:.1f} at a time on "
            f"{cores}",
            f"{len(runnable)} threads of {len(here)} ranks run or wait more than {IDLE:.0%} of "
            f"the time (input pipelines want {input_:.1f} cores); together they run "
            f"{sum(rank.cpu for rank in here):.1f} and wait for "
            f"{sum(queued(rank) for rank in here):.1f}",
            f"give each rank its part: about {max(1, cores // len(here))} intra-op thread"
            f"{'s' * (cores // len(here) > 1)} each (dltune plan allreduce)",
        )


def waiting(report: Horovod) -> Iterator[Finding]:
    waits = [
        (rank, thread)
        for rank in report.ranks
        if (thread := background(rank)) and thread.wait is not None and thread.wait > WAITS
    ]
    if waits:
        rank, thread = max(waits, key=lambda one: one[1].wait or 0.0)
        yield Finding(
            f"the background thread of {names([one for one, _ in waits])} waits for a core: "
            f"up to {thread.wait:.0%} of the time",
            f"rank {rank.rank}: thread {thread.tid} runs {thread.cpu:.0%} of the time and "
            f"is ready for {thread.wait:.0%} more, {thread.involuntary:.0f} involuntary "
            "switches/s; whoever sends gradients with it waits too",
            "give it a core, or a part of one, of its own: dltune plan allreduce (SCP), or "
            "HOROVOD_THREAD_AFFINITY",
        )


def oversleep(report: Horovod) -> Iterator[Finding]:
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
    yield Finding(
        f"the background thread of {names([one[1] for one in late])} oversleeps: one sleep in "
        f"twenty by more than {p95 * 1e3:.1f} ms",
        f"rank {rank.rank}, {slept.samples} sleeps: it runs {(slept.median or 0) * 1e3:.2f} ms "
        f"late at the median, {(slept.max or 0) * 1e3:.1f} ms at most; HOROVOD_CYCLE_TIME is "
        f"{cycles.setting * 1e3:g} ms; in the next collective all ranks wait for it",
        "give the background thread a core of its own (SCP), or have all ranks sleep alike "
        "(GS): dltune plan allreduce",
    )


def uneven(report: Horovod) -> Iterator[Finding]:
    compute = {
        rank.rank: sum(t.cpu for t in rank.threads if t.role in ("compute", "input", "python"))
        for rank in report.ranks
    }
    if len(compute) < 2 or report.partial:
        return
    middle = statistics.median_low(compute.values())
    most = max(compute, key=lambda rank: compute[rank])
    if middle > IDLE and compute[most] > UNEVEN * middle:
        yield Finding(
            f"rank {most} works more than the others",
            f"its threads that compute, read and run Python use {compute[most]:.2f} cores, "
            f"the median of ranks {middle:.2f}; the others wait for it in every step",
            "give ranks equal batches and equal cores, and keep what rank 0 alone does "
            "(logging, checkpoints) short",
        )
