"""A background thread that waits by spinning on a core that the ops need.

In the thesis (section 6.2.5), it waits actively inside MPI_Allreduce for 60 to 90 % of the time.
"""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding, Gain
from dltune.schemas.settings import Choice
from dltune.systems.ranks.findings import report
from dltune.systems.ranks.schemas.horovod import Rank, names

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
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find spinning threads. The cost is the time that compute threads could have run on the core
    of the spinning thread, as a share of the runnable time of the rank's threads."""
    spinners = [
        (rank, rank.thread) for rank in report.ranks(evidence) if rank.thread and is_spinning(rank)
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
