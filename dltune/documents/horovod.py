"""The horovod document: what each rank's threads did, and what its timeline tells.

Times are seconds, sizes bytes, rates per second, shares are of one core. None is "could not be
seen"; why not stands in `unseen`. Ranks of several hosts are merged into one document.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from dltune.documents import files, finding
from dltune.documents.faults import AMOUNT, each, index, one_of, repeated
from dltune.documents.finding import Finding
from dltune.documents.sections.allreduce import Controller

SCHEMA = "dltune.horovod/2"
# what the thread is called here that writes Horovod's timeline
WRITER = "horovod timeline"

# what a thread is there for: Horovod's own, or the one of PyTorch's that sends; MPI's and gloo's;
# op kernels; tf.data; the interpreter
Role = Literal["background", "helper", "compute", "input", "python", "other"]
# how the background thread was found: its id told by the job at hvd.init(), its stack, or the name
# that PyTorch gives it
Evidence = Literal["init", "stack", "name"]


class Distribution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`samples` values; the others are None when there are none."""

    samples: int
    mean: float | None = None
    median: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


class ThreadUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thread over the time watched.

    `cpu`, `user`, `system`: seconds per second. `wait`: seconds per second in which it could have
    run but another thread had its core (the run queue). Switches are per second. `cpus`: what its
    affinity allows, as the kernel numbers them. `born`: it began while the job was watched.
    """

    tid: int
    name: str
    role: Role
    cpu: float
    user: float
    system: float
    wait: float | None
    voluntary: float
    involuntary: float
    cpus: tuple[int, ...]
    born: bool = False


class Cycles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cycles of a background thread (thesis, section 6.2.2).

    `setting`: HOROVOD_CYCLE_TIME. `period`: from one cycle's start to the next. `oversleep`: how
    much later than it asked a sleeping thread woke up. `empty`: share of cycles in which nothing
    was transferred.
    """

    setting: float
    rate: float
    period: Distribution
    oversleep: Distribution | None
    empty: float | None


class Rank(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rank, watched for `seconds`: from when its background thread was found.

    `cpu` of the whole process. `bound`: the launcher cut the process to less than the node's cores.
    `threads` with the most CPU time first. `horovod`, `mpi`, `pytorch`: versions; a
    rank has Horovod or is PyTorch's. `settings`: HOROVOD_* and what Open MPI or OpenMP was told.
    `ended_after`: seconds from the watch's begin, None while it ran on;
    `ended`: its exit code or signal (negative), None also where the kernel tells it to nobody else.
    `error`: the exception that ended it. `stuck`: where it hung, when it did.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    host: str
    pid: int
    seconds: float
    controller: Controller | None
    horovod: str | None
    mpi: str | None
    settings: dict[str, str]
    evidence: tuple[Evidence, ...]
    background: int | None
    cpu: float
    cpus: tuple[int, ...]
    bound: bool
    threads: tuple[ThreadUse, ...]
    cycles: Cycles | None
    ended: int | None
    unseen: tuple[str, ...]
    ended_after: float | None = None
    error: str | None = None
    stuck: str | None = None
    pytorch: str | None = None

    @property
    def thread(self) -> ThreadUse | None:
        """The background thread; None where it was not found."""
        return next((t for t in self.threads if t.tid == self.background), None)

    @property
    def library(self) -> str:
        """What its gradients travel through, for people."""
        return "PyTorch" if self.pytorch else "Horovod"

    @property
    def queued(self) -> float:
        """Cores that its threads wait for."""
        return sum(thread.wait or 0.0 for thread in self.threads)

    @property
    def wanting(self) -> float:
        """Cores that its threads would fill: those they have and those they wait for."""
        return self.cpu + self.queued


class Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tensor of a timeline. `negotiation`: from the first rank's request to the last's.
    `queue`: from then until its transfer begins. `transfer`: the collective alone."""

    name: str
    times: int
    bytes: int | None
    negotiation: Distribution
    queue: Distribution
    transfer: Distribution


class TransferCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A collective that no rank delays: seconds that each takes, and that each byte adds."""

    latency: float
    per_byte: float


class Timeline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Horovod's own record (HOROVOD_TIMELINE) of `seconds` of one rank.

    `batches`: collectives, with how many tensors each held (`fused`). `cached`: share of the
    requests that skipped negotiation. `late`: for each rank, the share of negotiations that it was
    the last to join. `truncated`: the file ends in the middle of a record. `step`: from the end of
    one training step's last collective to that of the next one's. `cost`: what the fastest
    collectives of few bytes and of many tell.
    """

    path: str
    seconds: float
    events: int
    truncated: bool
    controller: Controller | None
    cycles: Cycles | None
    batches: int
    fused: Distribution
    cached: float | None
    negotiation: Distribution
    queue: Distribution
    transfer: Distribution
    late: dict[str, float]
    tensors: tuple[Tensor, ...]
    step: Distribution | None = None
    cost: TransferCost | None = None


class Horovod(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """`cores`: what the job could use on each host, by host name. `machine`: the fingerprint of
    the machine on which the report was made. `watching`: share of one CPU that it took to watch."""

    schema: str
    created: str
    dltune: str
    command: tuple[str, ...]
    machine: str
    machine_name: str
    cores: dict[str, int]
    partial: bool
    ranks: tuple[Rank, ...]
    timeline: Timeline | None
    findings: tuple[Finding, ...]
    watching: float | None = None


def names(ranks: Sequence[Rank]) -> str:
    """As sentences name them: "rank 0", "ranks 0, 1"."""
    numbers = [str(rank.rank) for rank in ranks]
    if len(numbers) > 6:
        return f"{len(numbers)} ranks ({', '.join(numbers[:5])}, ...)"
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(numbers)}"


def _second(first: dict[str, Any]) -> dict[str, Any]:
    """A report of the first schema, which had findings of its own kind."""
    return finding.of_another_kind(first, claim="told", cure="remedy")


def check(report: Horovod) -> list[str]:
    """All that cannot be in a report, one sentence each, the field's path first."""
    return [
        *(
            fault
            for here, rank in each("ranks", report.ranks)
            for fault in _rank_faults(here, rank)
        ),
        *repeated("ranks", "rank", (rank.rank for rank in report.ranks)),
        *finding.faults("findings", report.findings),
    ]


load = files.reader(Horovod, SCHEMA, check, {1: _second})


def _rank_faults(here: str, rank: Rank) -> Iterator[str]:
    yield from index(rank.size, "ranks").of(here, rank, "rank")
    yield from index(rank.local_size, "local ranks").of(here, rank, "local_rank")
    yield from AMOUNT.of(here, rank, "seconds", "cpu")
    yield from one_of({t.tid for t in rank.threads}, "its threads").of(here, rank, "background")
    used = ("cpu", "user", "system", "voluntary", "involuntary")
    for at, thread in each(f"{here}.threads", rank.threads):
        yield from AMOUNT.of(at, thread, *used)
