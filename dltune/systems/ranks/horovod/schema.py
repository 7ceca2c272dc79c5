"""The horovod document: the threads of each rank and the job's timeline. `dltune horovod-report`
writes it.

Times are in seconds, sizes in bytes and rates per second; shares refer to one core. A null value
could not be observed; `unseen` gives the reason. The ranks of several hosts are merged into one
document.

Many values in six numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec

from dltune.base import documents
from dltune.base.documents import AMOUNT, index, one_of, repeated
from dltune.schemas.diagnosis import Finding
from dltune.systems.ranks.allreduce.section import Controller

SCHEMA = "dltune.horovod/1"
# name of the thread here that writes Horovod's timeline
WRITER = "horovod timeline"

# role of a thread: Horovod's background thread, or the thread of PyTorch's that sends; MPI's and
# gloo's; op kernels; tf.data; the interpreter
Role = Literal["background", "helper", "compute", "input", "python", "other"]
# source of the background thread's id: the job's message at hvd.init(), its stack, or the name that
# PyTorch gives it
Evidence = Literal["init", "stack", "name"]


class Distribution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A distribution of values; all statistics are null without samples.

    `samples`: number of values.
    `mean`, `median`, `p95`, `p99`, `max`: statistics.
    """

    samples: int
    mean: float | None = None
    median: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


class ThreadUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A thread during the observation.

    `tid`, `name`: the thread.
    `role`: `background`: Horovod's communication thread, or the thread of PyTorch that sends;
      `helper`: threads of MPI or gloo; `compute`; `input`: tf.data; `python`; `other`.
    `cpu`, `user`, `system`: CPU seconds per second.
    `wait`: seconds per second in which the thread could have run but another thread used its core.
    `voluntary`, `involuntary`: context switches per second.
    `cpus`: CPUs that its affinity allows.
    `born`: true if the thread started during the observation.
    """

    tid: int
    name: str
    role: Role
    cpu: Annotated[float, AMOUNT]
    user: Annotated[float, AMOUNT]
    system: Annotated[float, AMOUNT]
    wait: float | None
    voluntary: Annotated[float, AMOUNT]
    involuntary: Annotated[float, AMOUNT]
    cpus: tuple[int, ...]
    born: bool = False


class Cycles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cycles of the background thread (section 6.2.2 of Pumma's thesis).

    `setting`: `HOROVOD_CYCLE_TIME`.
    `rate`: cycles per second.
    `period`: time from the start of one cycle to the next.
    `oversleep`: delay between the requested and the actual wake-up.
    `empty`: share of cycles without a transfer.
    """

    setting: float
    rate: float
    period: Distribution
    oversleep: Distribution | None
    empty: float | None


class Rank(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rank, observed from the time when its background thread was found.

    `rank`, `size`, `local_rank`, `local_size`: position among all ranks and on its host.
    `host`, `pid`: host and process.
    `seconds`: duration of the observation.
    `controller`: `mpi` or `gloo`.
    `horovod`, `mpi`, `pytorch`: versions; a rank uses Horovod or PyTorch's own communication.
    `settings`: `HOROVOD_*` variables and settings of Open MPI and OpenMP.
    `evidence`: how the background thread was found: `init`: reported by the job at `hvd.init()`;
      its `stack`; or its `name`.
    `background`: number of the background thread.
    `cpu`: CPU seconds per second of the whole process.
    `cpus`: CPUs that the process can use.
    `bound`: true if the launcher restricts the process to a part of the node's cores.
    `threads`: threads, those with the most CPU time first.
    `cycles`: cycles of the background thread.
    `ended`: exit code, or negative signal number; null if the process still runs or the code is
      unknown.
    `ended_after`: seconds until the process ended; null if it still runs.
    `error`: exception that ended the process.
    `stuck`: place where the process hung.
    `unseen`: things that could not be observed, with the reason.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    host: str
    pid: int
    seconds: Annotated[float, AMOUNT]
    controller: Controller | None
    horovod: str | None
    mpi: str | None
    settings: dict[str, str]
    evidence: tuple[Evidence, ...]
    background: int | None
    cpu: Annotated[float, AMOUNT]
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
        """Return the name, for people, of the library that its gradients travel through."""
        return "PyTorch" if self.pytorch else "Horovod"

    @property
    def queued(self) -> float:
        """Cores that its threads wait for."""
        return sum(thread.wait or 0.0 for thread in self.threads)

    @property
    def wanting(self) -> float:
        """Cores that its threads would fill: those they have and those they wait for."""
        return self.cpu + self.queued

    def relation_faults(self) -> Iterator[str]:
        yield from index(self.size, "ranks").of("", self, "rank")
        yield from index(self.local_size, "local ranks").of("", self, "local_rank")
        tids = {thread.tid for thread in self.threads}
        yield from one_of(tids, "the tids of threads").of("", self, "background")


class Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor of the timeline.

    `name`: name of the tensor.
    `times`: number of transfers.
    `bytes`: size.
    `negotiation`: time from the first rank's request to the last rank's.
    `queue`: time from then until the transfer begins.
    `transfer`: time of the collective.
    """

    name: str
    times: int
    bytes: int | None
    negotiation: Distribution
    queue: Distribution
    transfer: Distribution


class TransferCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cost of a collective that no rank delays.

    `latency`: seconds per collective.
    `per_byte`: additional seconds per byte.
    """

    latency: float
    per_byte: float


class Timeline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Horovod's own record (`HOROVOD_TIMELINE`) of one rank.

    `path`: file.
    `seconds`: duration.
    `events`: number of events.
    `truncated`: true if the file ends in the middle of an event.
    `controller`: `mpi` or `gloo`.
    `cycles`: cycles of the background thread.
    `batches`: number of collectives.
    `fused`: tensors per collective.
    `cached`: share of requests that skipped negotiation.
    `negotiation`, `queue`, `transfer`: times over all tensors.
    `late`: for each rank, the share of negotiations that it joined last.
    `tensors`: times per tensor.
    `step`: time from the end of one training step's last collective to the end of the next step's.
    `cost`: cost of the fastest collectives.
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


class Horovod(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A report on the ranks of a job.

    `machine`, `machine_name`: fingerprint and name of the machine on which the report was made.
    `cores`: cores that the job could use, by host name.
    `partial`: true if the observation ended early.
    `ranks`: ranks of the job.
    `timeline`: Horovod's own record; null without one.
    `findings`: findings in order of cost.
    `watching`: share of one CPU that the observation used.
    """

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

    def relation_faults(self) -> Iterator[str]:
        yield from repeated("ranks", "rank", (rank.rank for rank in self.ranks))


def names(ranks: Sequence[Rank]) -> str:
    """Return the words for ranks in sentences: "rank 0", "ranks 0, 1"."""
    numbers = [str(rank.rank) for rank in ranks]
    if len(numbers) > 6:
        return f"{len(numbers)} ranks ({', '.join(numbers[:5])}, ...)"
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(numbers)}"


load = documents.reader(Horovod, SCHEMA)


def distribution(values: Sequence[float]) -> Distribution:
    """Quantiles are values that occurred: the least that this share of all do not exceed."""
    if not values:
        return Distribution(0)
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    mean = math.fsum(ordered) / len(ordered)
    return Distribution(len(ordered), mean, at(0.5), at(0.95), at(0.99), ordered[-1])
