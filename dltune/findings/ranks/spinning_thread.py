"""A background thread that waits by spinning, on a core that the ops want.

The thesis finds it busy-waiting inside MPI_Allreduce for 60 to 90 % of the time (section 6.2.5).
"""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.documents.horovod import Rank, names
from dltune.documents.sections.settings import Choice
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

# a thread that blocks when it has nothing to do takes a few % of a core for 1,000 cycles a second;
# one that takes more than this, more than three quarters of it in user space, waits by spinning
SPINS, IN_USER = 0.15, 0.75


@rule(
    "spinning-thread",
    "ranks",
    summary="A communication thread spins on a core that the ops need.",
    fix="Let it sleep or yield (dltune plan allreduce, OMPI_MCA_mpi_yield_when_idle=1), or use "
    "fewer intra-op threads.",
    order=1,
)
def find(seen: Seen) -> Iterator[Finding]:
    """The cost: what compute threads would have run on the spinning thread's core, of the time that
    the rank's threads run or are ready to."""
    spinners = [
        (rank, rank.thread)
        for rank in (seen.horovod.ranks if seen.horovod else ())
        if rank.thread and spins(rank)
    ]
    if not spinners:
        return
    rank, thread = max(spinners, key=lambda one: one[1].cpu)
    starved = _starved(rank)
    wait = f"; its compute threads wait for {starved:.2f} of a core" if starved else ""
    share = denied(rank) / rank.wanting
    yield Finding(
        title=f"the background thread of {names([one for one, _ in spinners])} spins: up to "
        f"{thread.cpu:.0%} of a core",
        evidence=f"rank {rank.rank}: thread {thread.tid}, {thread.user / thread.cpu:.0%} of it in "
        "user "
        f"space, {thread.cpu / max(rank.cpu, 1e-9):.0%} of what the rank uses{wait}",
        fix="set OMPI_MCA_mpi_yield_when_idle=1, or let dltune plan allreduce replace MPI's "
        "polling by "
        "short sleeps"
        if rank.controller == "mpi"
        else f"{fewer_threads(rank)}: the thread adds up gradients and needs a core"
        if rank.pytorch
        else "use longer cycles (HOROVOD_CYCLE_TIME) or larger bins: over gloo the thread polls "
        "for work all the time",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
        apply=(Choice("mpi_yield", "on"),) if (rank.mpi or "").startswith("Open MPI") else (),
    )


def fewer_threads(rank: Rank) -> str:
    """Return the fix that leaves part of a core free in each PyTorch rank."""
    if rank.settings.get("OMP_NUM_THREADS") == "1":
        return "start fewer ranks on the node (each has only one intra-op thread)"
    return "give each rank one intra-op thread less (OMP_NUM_THREADS)"


def spins(rank: Rank) -> bool:
    thread = rank.thread
    return thread is not None and thread.cpu > SPINS and thread.user > IN_USER * thread.cpu


def denied(rank: Rank) -> float:
    """Of a core: what the rank's compute threads wait for while its background thread spins."""
    return min(rank.thread.cpu, _starved(rank)) if rank.thread and spins(rank) else 0.0


def _starved(rank: Rank) -> float:
    return sum(thread.wait or 0.0 for thread in rank.threads if thread.role == "compute")
