"""Findings about the cores of ranks: those of their ops, and those of their background threads."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.cores import BUSY
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain
from dltune.schemas.settings import Choice
from dltune.system.kernel_files import format_cpulist
from dltune.systems.ranks.findings import failures
from dltune.systems.ranks.horovod.schema import Horovod, Rank, ThreadUse, names


@rule(
    "ranks-on-one-core",
    "ranks",
    summary="The launcher binds ranks to fewer cores than their threads can use.",
    fix="Start the job without binding (mpirun --bind-to none, srun --cpu-bind=none).",
    order=1,
)
def ranks_on_one_core(evidence: Evidence) -> Iterator[Finding]:
    """Find ranks that their launcher has bound to fewer cores than their threads can use. The cost
    is the share of the runnable time of a rank's threads in which they had no core."""
    bound = [
        rank
        for rank in failures.reported_ranks(evidence)
        if rank.bound and rank.local_size > 1 and len(rank.cpus) < rank.wanting
    ]
    if not bound:
        yield from _single_rank(evidence)
        return
    worst = min(bound, key=lambda rank: len(rank.cpus))
    cpus = len(worst.cpus)
    share = max(rank.queued / rank.wanting for rank in bound)
    yield Finding(
        title=f"{names(bound)} {'is' if len(bound) == 1 else 'are'} bound to "
        f"{'one core' if cpus == 1 else f'{cpus} CPUs'}"
        f"{'' if len(bound) == 1 else ' each'}, and can use more",
        evidence=f"rank {worst.rank} can use only CPU {', '.join(map(str, worst.cpus))}; its "
        f"threads use {worst.cpu:.2f} CPUs and wait for {worst.queued:.2f} more",
        fix="start mpirun with --bind-to none, or with a rankfile (dltune plan allreduce): by "
        "default it binds up to two ranks to a core each"
        if worst.controller == "mpi"
        else "start the job without binding (taskset, srun --cpu-bind=none)",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
    )


def _single_rank(evidence: Evidence) -> Iterator[Finding]:
    """Find a rank that is bound although more cores are available for each rank."""
    observation = evidence.observation
    main = evidence.main
    if observation is None or main is None or not main.ranks or not main.cpus:
        return
    allowed, available = len(main.cpus), len(observation.host.cpus)
    host, fair = observation.host, available / main.ranks
    share = 1 - host.cores(main.cpus) * main.ranks / host.cores(host.cpus)
    if allowed >= fair or share <= 0 or main.cpu < BUSY * allowed:
        return
    yield Finding(
        title=f"the launcher has bound the rank to {allowed} of {available} CPUs",
        evidence=f"pid {main.pid} can use only CPU {format_cpulist(main.cpus)}; {main.ranks} rank"
        f"{'s' * (main.ranks > 1)} of the job on this node could have {fair:g} each",
        fix="start mpirun with --bind-to none (srun: --cpu-bind=none): by default it binds up to "
        "two ranks to a core each",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
    )


# share of a core, and the share of that in user space, above which a thread waits by spinning; a
# thread that blocks instead uses a few per cent of a core for 1,000 cycles per second
MIN_CPU, MIN_USER = 0.15, 0.75


@rule(
    "spinning-thread",
    "ranks",
    summary="A communication thread spins on a core that the ops need.",
    fix="Let it sleep or yield (dltune plan allreduce, OMPI_MCA_mpi_yield_when_idle=1), or use "
    "fewer intra-op threads.",
    order=1,
)
def spinning_thread(evidence: Evidence) -> Iterator[Finding]:
    """Find a background thread that waits by spinning on a core that the ops need. The cost is the
    time that compute threads could have run on the core of the spinning thread, as a share of the
    runnable time of the rank's threads.

    In the thesis (section 6.2.5), the thread waits actively inside MPI_Allreduce for 60 to 90 % of
    the time.
    """
    spinners = [
        (rank, rank.thread)
        for rank in failures.reported_ranks(evidence)
        if rank.thread and is_spinning(rank)
    ]
    if not spinners:
        return
    rank, thread = max(spinners, key=lambda spinner: spinner[1].cpu)
    waiting = _waiting_cores(rank)
    wait = f"; its compute threads wait for {waiting:.2f} of a core" if waiting else ""
    share = denied_cores(rank) / rank.wanting
    yield Finding(
        title=f"the background thread of {names([each for each, _ in spinners])} spins: up to "
        f"{thread.cpu:.0%} of a core",
        evidence=f"rank {rank.rank}: thread {thread.tid}, {thread.user / thread.cpu:.0%} of it in "
        f"user space, {thread.cpu / max(rank.cpu, 1e-9):.0%} of what the rank uses{wait}",
        fix="set OMPI_MCA_mpi_yield_when_idle=1, or let dltune plan allreduce replace MPI's "
        "polling by short sleeps"
        if rank.controller == "mpi"
        else f"{fewer_threads_fix(rank)}: the thread adds up gradients and needs a core"
        if rank.pytorch
        else "use longer cycles (HOROVOD_CYCLE_TIME) or larger bins: over gloo the thread polls "
        "for work all the time",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
        apply=(Choice("mpi_yield", "on"),) if (rank.mpi or "").startswith("Open MPI") else (),
    )


def fewer_threads_fix(rank: Rank) -> str:
    """Return the fix that leaves part of a core free in each PyTorch rank."""
    if rank.settings.get("OMP_NUM_THREADS") == "1":
        return "start fewer ranks on the node (each has only one intra-op thread)"
    return "give each rank one intra-op thread less (OMP_NUM_THREADS)"


def is_spinning(rank: Rank) -> bool:
    """Return whether the rank's background thread waits by spinning."""
    thread = rank.thread
    return thread is not None and thread.cpu > MIN_CPU and thread.user > MIN_USER * thread.cpu


def denied_cores(rank: Rank) -> float:
    """Return the cores that compute threads of the rank wait for while its thread spins."""
    return min(rank.thread.cpu, _waiting_cores(rank)) if rank.thread and is_spinning(rank) else 0.0


def _waiting_cores(rank: Rank) -> float:
    """Return the number of cores that the compute threads wait for."""
    return sum(thread.wait or 0.0 for thread in rank.threads if thread.role == "compute")


# runnable threads per core; with fewer, threads hardly wait
CROWDED = 1.25
# share of a core; threads that need less are not counted
IDLE = 0.05
_SETTINGS = {"Horovod": "dltune plan allreduce", "PyTorch": "OMP_NUM_THREADS={}"}


@rule(
    "crowded-ranks",
    "ranks",
    summary="The ranks of a host have more runnable threads than the host has cores.",
    fix="Give each rank its share of the cores: fewer intra-op threads.",
    order=2,
)
def crowded_ranks(evidence: Evidence) -> Iterator[Finding]:
    """Find ranks of one host whose runnable threads outnumber its cores. The cost is the share of
    the runnable time in which threads had no core. The rule `spinning-thread` reports the cost of
    spinning threads, so they are not counted."""
    found = evidence.report(Horovod)
    for host, cores in found.cores.items() if found else ():
        ranks = [rank for rank in failures.reported_ranks(evidence) if rank.host == host]
        spinning = [rank.thread for rank in ranks if is_spinning(rank)]
        threads = [t for rank in ranks for t in rank.threads if t not in spinning]
        needed = sum(map(_needed_cores, threads))
        if needed <= CROWDED * cores:
            continue
        runnable = [thread for thread in threads if _needed_cores(thread) > IDLE]
        inputs = sum(_needed_cores(thread) for thread in runnable if thread.role == "input")
        waiting = sum(thread.wait or 0.0 for thread in threads)
        part = max(1, cores // len(ranks))
        share = (waiting - sum(map(denied_cores, ranks))) / sum(rank.wanting for rank in ranks)
        yield Finding(
            title=f"ranks on {host} have more runnable threads than cores: {needed:.1f} threads "
            f"on {cores} core{'s' * (cores > 1)}",
            evidence=f"{len(runnable)} threads of {len(ranks)} ranks run or wait for a core for "
            f"more than {IDLE:.0%} of the time (input pipelines: {inputs:.1f} cores); together "
            f"they use {sum(t.cpu for t in threads):.1f} cores and wait for {waiting:.1f}",
            fix=f"give each rank its share: about {part} intra-op thread{'s' * (part > 1)} each "
            f"({_SETTINGS[ranks[0].library].format(part)})",
            share=share,
            gain=Gain(0.0, share),
            confidence="modelled",
        )


def _needed_cores(thread: ThreadUse) -> float:
    """Return the share of a core that a thread uses or waits for."""
    return thread.cpu + (thread.wait or 0.0)


# share of the time in which the thread is ready but has no core
MIN_WAIT = 0.10


@rule(
    "starved-background",
    "ranks",
    summary="A communication thread has gradients to send but no core.",
    fix="Give it a core, or part of one (dltune plan allreduce, HOROVOD_THREAD_AFFINITY).",
    order=1,
)
def starved_background(evidence: Evidence) -> Iterator[Finding]:
    """Find a background thread that is ready to send gradients but has no core. The cost is
    unknown, because ops can run at the same time."""
    waits = [
        (rank, thread)
        for rank in failures.reported_ranks(evidence)
        if (thread := rank.thread) and thread.wait is not None and thread.wait > MIN_WAIT
    ]
    if not waits:
        return
    rank, thread = max(waits, key=lambda pair: pair[1].wait or 0.0)
    yield Finding(
        title=f"the background thread of {names([each for each, _ in waits])} waits for a core: "
        f"up to {thread.wait:.0%} of the time",
        evidence=f"rank {rank.rank}: thread {thread.tid} runs {thread.cpu:.0%} of the time and "
        f"waits for a core for {thread.wait:.0%} more, {thread.involuntary:.0f} involuntary "
        "switches/s; all ranks that exchange gradients with it wait too",
        fix=(
            fewer_threads_fix(rank)
            if rank.pytorch
            else "give it a core, or part of one: dltune plan allreduce, or HOROVOD_THREAD_AFFINITY"
        ),
    )


# delay of 5 % of the sleeps as a share of HOROVOD_CYCLE_TIME, which makes a cycle 1.5 times as
# long; relative to at least MIN_CYCLE seconds, because timers have slack
LATE, MIN_CYCLE = 0.5, 1e-3
# sleeps, so that 5 % are more than one or two
MIN_SLEEPS = 60


@rule(
    "oversleeping-thread",
    "ranks",
    summary="A background thread wakes up late, and all ranks wait for it.",
    fix="Give the background thread its own core (dltune plan allreduce).",
    order=2,
)
def oversleeping_thread(evidence: Evidence) -> Iterator[Finding]:
    """Find a background thread that wakes up too late, so that all ranks wait for it."""
    late = [
        (delay.p95, rank, rank.cycles, delay)
        for rank in failures.reported_ranks(evidence)
        if rank.cycles
        and (delay := rank.cycles.oversleep)
        and delay.samples >= MIN_SLEEPS
        and delay.p95 is not None
        and delay.p95 > LATE * max(rank.cycles.setting, MIN_CYCLE)
    ]
    if not late:
        return
    p95, rank, cycles, delay = max(late, key=lambda thread: thread[0])
    yield Finding(
        title=f"the background thread of {names([each for _, each, *_ in late])} oversleeps: 5 % "
        f"of its sleeps last more than {p95 * 1e3:.1f} ms too long",
        evidence=f"rank {rank.rank}, {delay.samples} sleeps: it wakes up "
        f"{(delay.median or 0) * 1e3:.2f} ms late at the median, {(delay.max or 0) * 1e3:.1f} ms "
        f"at most; HOROVOD_CYCLE_TIME is {cycles.setting * 1e3:g} ms; all ranks wait for it in the "
        "next collective",
        fix="give the background thread its own core, or let all ranks sleep at the same time: "
        "dltune plan allreduce",
    )


# rules that report a slow background thread
_PROBLEMS = (
    failures.failed_rank,
    failures.hanging_rank,
    failures.unseen_background,
    ranks_on_one_core,
    spinning_thread,
    starved_background,
    crowded_ranks,
    oversleeping_thread,
)


@rule(
    "background-at-rest",
    "ranks",
    summary="The communication threads do not slow down the job.",
    fix="Nothing has to be done.",
)
def background_at_rest(evidence: Evidence) -> Iterator[Finding]:
    """Find background threads that do not slow down the job."""
    report = evidence.report(Horovod)
    if not report or not report.ranks or any(any(rule(evidence)) for rule in _PROBLEMS):
        return
    threads = [rank.thread for rank in report.ranks if rank.thread]
    cpu = max((thread.cpu for thread in threads), default=0.0)
    wait = max((thread.wait or 0.0 for thread in threads), default=0.0)
    yield Finding(
        title=f"{report.ranks[0].library}'s background threads do not slow down the job",
        evidence=f"the busiest uses {cpu:.1%} of a core, and waits for a core at most {wait:.1%} "
        "of the time; dltune profile measures the ops",
    )
