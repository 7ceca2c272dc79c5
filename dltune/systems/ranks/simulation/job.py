"""Simulated parts: a training step on each rank, its cores, the network, and Horovod's settings.

All times are seconds, sizes bytes. Each rank has a background thread; ranks that share cores form a
pool (a node, or a single rank that is bound to separate cores).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from dltune.stats import quantiles


@dataclass(frozen=True)
class Network:
    """`latency`: seconds of a message between two ranks. `bandwidth`: bytes per second that a rank
    can send. `copy`: bytes per second into and out of the fusion buffer (infinite: not counted).
    `fixed`: seconds that every collective takes besides, such as starting it on a device.

    It decides how long an allreduce takes once all ranks have come: latency and bandwidth
    (alpha-beta model). Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
    Operations in MPICH", 2005: a ring sends 2 (P - 1) messages of n / P bytes; a tree's reduction
    and broadcast each take log2 P steps, through which a long message flows in pieces.
    """

    latency: float
    bandwidth: float
    algorithm: Literal["ring", "tree"] = "ring"
    copy: float = math.inf
    fixed: float = 0.0

    def __post_init__(self) -> None:
        if self.latency < 0 or self.fixed < 0 or self.bandwidth <= 0 or self.copy <= 0:
            raise ValueError("a network has bandwidth, and no negative latency")

    def start(self, ranks: int) -> float:
        """Seconds of an allreduce without bytes."""
        steps = 2 * (ranks - 1) if self.algorithm == "ring" else 2 * _levels(ranks)
        return self.fixed + steps * self.latency

    def per_byte(self, ranks: int) -> float:
        """Seconds that each byte adds."""
        if ranks == 1:
            return 0.0
        sent = 2 * (ranks - 1) / ranks if self.algorithm == "ring" else 2.0
        return sent / self.bandwidth

    def few_bytes(self, ranks: int) -> float:
        """Seconds of an allreduce of a few bytes by recursive doubling, as of caches or sleeps."""
        return _levels(ranks) * self.latency


def _levels(ranks: int) -> int:
    return (ranks - 1).bit_length()


# Shares at which measured values are kept: their tail decides how long the last of many ranks is.
_SHARES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 1.0)


@dataclass(frozen=True)
class Quantiles:
    """`points`: (share of the values that are at most this, value), both rising, from share 0 to 1.

    Raises ValueError when they are not.

    A distribution given by some of its quantiles is linear between them.
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        shares = [share for share, _ in self.points]
        values = [value for _, value in self.points]
        if len(self.points) < 2 or shares[0] != 0 or shares[-1] != 1:
            raise ValueError("quantiles go from share 0 to share 1")
        if any(a >= b for a, b in itertools.pairwise(shares)):
            raise ValueError("shares of quantiles rise")
        if any(a > b for a, b in itertools.pairwise(values)) or not all(map(math.isfinite, values)):
            raise ValueError("values of quantiles rise and are finite")
        if values[0] < 0:
            raise ValueError(f"the least value, {values[0]}, is negative")

    @property
    def mean(self) -> float:
        return math.fsum(
            (b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(self.points)
        )


def constant(value: float) -> Quantiles:
    return Quantiles(((0.0, value), (1.0, value)))


def measured(values: Sequence[float]) -> Quantiles:
    """The quantiles of measured values, more of them towards the tail. Raises ValueError."""
    rising = itertools.accumulate(quantiles(values, _SHARES), max)
    return Quantiles(tuple(zip(_SHARES, rising, strict=True)))


# Seconds a byte of putting a tensor together: TensorFlow took 0.1 to 0.23 ns for 4 to 25 MB, on one
# core of an AVX-512 Xeon.
JOIN = 0.2e-9


@dataclass(frozen=True)
class Phase:
    """A part of a step's computing: `seconds` on `threads` cores that nobody else wants.

    At its end `tensors` (indices) become ready. Phases follow one another; those at the beginning
    hold what comes before the first gradient, and of the step before what no update is.
    0 threads: a device computes, and the cores are free.
    """

    seconds: float
    threads: float
    tensors: tuple[int, ...] = ()


@dataclass(frozen=True)
class Update:
    """The work of a rank once all of `tensors` have been reduced, such as an optimizer's step for a
    variable: `seconds` on `threads` cores, after its phases, one after another as they can."""

    seconds: float
    threads: float
    tensors: tuple[int, ...]


@dataclass(frozen=True)
class Pool:
    """`ranks` processes that share `cores`."""

    ranks: int
    cores: float


@dataclass(frozen=True)
class Waiting:
    """The share of a core that the background thread wants while it waits for the other ranks, and
    while it transfers. `wakes`: it sleeps while it waits, and must be woken."""

    synchronizing: float
    transferring: float
    wakes: bool


# Open MPI spins; gloo blocks until data come, and adds them up itself.
MPI = Waiting(1.0, 1.0, wakes=False)
GLOO = Waiting(0.0, 0.5, wakes=True)


@dataclass(frozen=True)
class Job:
    """A data-parallel training job.

    `tensors`: bytes of each gradient, in the order of Horovod's response cache. `phases`: a step's
    computing on each rank until its gradients are there, `updates` what waits for them; the next
    step waits for all of these. `jitter`: the factor by which a rank's step is longer (1: exactly
    so).
    `input_seconds` on each of `input_threads` cores: reading the next batch, which begins when the
    step does; the next step waits for it.
    `wake`: by how much a sleeping background thread oversleeps while a core is free for it;
    `wake_busy`: while none is (section 6.2.4: up to tens of milliseconds).
    `answer`, `answer_busy`: how much later than an allreduce ended a rank's background thread is on
    a core and sees it; drawn for the caches' and, unless `offloaded`, for each transfer's. None: as
    long as it oversleeps where it must be woken, not at all where it spins.
    `sync`: seconds of the caches' allreduce once the last rank has come (None: by the network).
    `cycle_seconds`: the background thread's own work in a cycle. `request`: the coordinator's work
    for one tensor of one rank that is not in the cache. `test`: that of asking whether a
    non-blocking allreduce is done.
    `offloaded`: a device transfers, and the background thread goes on meanwhile (NCCL).
    """

    ranks: int
    pool: Pool
    tensors: tuple[int, ...]
    phases: tuple[Phase, ...]
    network: Network
    wake: Quantiles
    wake_busy: Quantiles
    cycle_time: float = 1e-3
    fusion_threshold: int = 128 << 20
    cache_capacity: int = 1024
    answer: Quantiles | None = None
    answer_busy: Quantiles | None = None
    jitter: Quantiles = field(default_factory=lambda: constant(1.0))
    input_seconds: float = 0.0
    input_threads: float = 0.0
    waiting: Waiting = MPI
    offloaded: bool = False
    sync: float | None = None
    cycle_seconds: float = 20e-6
    request: float = 2e-6
    test: float = 2e-6
    updates: tuple[Update, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError for what cannot be."""
        if self.ranks < 1 or self.pool.ranks < 1 or self.ranks % self.pool.ranks:
            raise ValueError(f"{self.ranks} ranks do not fill pools of {self.pool.ranks}")
        if self.pool.cores <= 0:
            raise ValueError("a pool has cores")
        placed = sorted(tensor for phase in self.phases for tensor in phase.tensors)
        if placed != list(range(len(self.tensors))):
            raise ValueError("each tensor becomes ready in one phase")
        if not self.tensors:
            raise ValueError("there is nothing to reduce")
        if not self.phases or any(p.seconds < 0 or p.threads < 0 for p in self.phases):
            raise ValueError("a phase takes no negative time or cores")
        if any(
            u.seconds < 0 or u.threads < 0 or not 0 < len(set(u.tensors)) == len(u.tensors)
            for u in self.updates
        ) or not {t for u in self.updates for t in u.tensors} <= set(placed):
            raise ValueError("an update takes no negative time or cores, and waits for tensors")
        if min(self.tensors) < 0 or self.fusion_threshold < 0 or self.cache_capacity < 0:
            raise ValueError("sizes are not negative")
        times = (self.cycle_time, self.input_seconds, self.cycle_seconds, self.request, self.test)
        if min(times) < 0 or not all(map(math.isfinite, times)):
            raise ValueError("times are finite and not negative")

    @property
    def answers(self) -> tuple[Quantiles, Quantiles] | None:
        """`answer` and `answer_busy`; None where all see the end at once."""
        if self.answer is None and self.answer_busy is None:
            return (self.wake, self.wake_busy) if self.waiting.wakes else None
        return self.answer or constant(0.0), self.answer_busy or constant(0.0)

    @property
    def synchronization(self) -> float:
        """Seconds of the caches' allreduce once the last rank has come."""
        return self.network.few_bytes(self.ranks) if self.sync is None else self.sync


def cut(job: Job, pieces: Mapping[int, Sequence[int]]) -> Job:
    """Return the same job with some tensors in `pieces` of so many bytes: each a separate tensor,
    put together when all have come. They have the place of their tensor, so that those behind have
    other numbers."""
    if not pieces:
        return job
    sizes = [tuple(pieces.get(tensor, (size,))) for tensor, size in enumerate(job.tensors)]
    ends = list(itertools.accumulate(map(len, sizes)))

    def each(tensors: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(i for t in tensors for i in range(ends[t] - len(sizes[t]), ends[t]))

    return replace(
        job,
        tensors=tuple(itertools.chain.from_iterable(sizes)),
        phases=tuple(replace(phase, tensors=each(phase.tensors)) for phase in job.phases),
        updates=(
            *(replace(update, tensors=each(update.tensors)) for update in job.updates),
            *(Update(JOIN * job.tensors[tensor], 1.0, each((tensor,))) for tensor in pieces),
        ),
    )


def phases(
    ready: Sequence[float], *, threads: float, before: float = 0.0, end: float | None = None
) -> tuple[Phase, ...]:
    """Phases from measured times: tensor i is ready `ready[i]` seconds after the step began.

    `before`: seconds that come first, such as the optimizer's. `end`: when computing ends, if that
    is after the last tensor. Tensors that are ready together share a phase.
    """
    found: list[Phase] = []
    done = 0.0
    for moment in sorted(set(ready)):
        tensors = tuple(i for i, at in enumerate(ready) if at == moment)
        found.append(Phase(max(0.0, moment - done) + (0.0 if found else before), threads, tensors))
        done = moment
    if end is not None and end > done:
        found.append(Phase(end - done, threads))
    return tuple(found)


@dataclass(frozen=True)
class Method:
    """`agree_every`: GS (section 6.3.1), all ranks take the least sleep, every so many cycles;
    every cycle was best there.
    `between_tests`: NBCS (6.3.2), seconds slept between two tests of the caches' allreduce.
    `reserved`: SCP (6.3.3), cores of a pool that only background threads may use, and they only
    those. With bins it is the SCP-TOPO of section 6.4.1.
    `input_cores`: SCP, the same for input pipelines; 0: they share the others with computing.
    `bins`: tensors that travel together once the last is there; in this order where `synchronized`
    is false. `synchronized`: false is TOPO as the thesis has it (6.3.4), one wake-up for each bin
    and no synchronization of caches; bins with it are those of stock Horovod's groups.
    `rest`: seconds at most that a background thread whose rank has nothing to send goes on sleeping
    when its cycle is over; a tensor ends that. No method of the thesis.

    Methods say how Horovod's background threads agree: the original, and those of thesis section
    6.3.
    """

    name: str
    agree_every: int | None = None
    between_tests: float | None = None
    reserved: float = 0.0
    input_cores: float = 0.0
    bins: tuple[tuple[int, ...], ...] | None = None
    synchronized: bool = True
    rest: float | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for what cannot be."""
        if self.agree_every is not None and self.agree_every < 1:
            raise ValueError("ranks agree every cycle at most")
        if self.between_tests is not None and self.between_tests <= 0:
            raise ValueError("a sleep between tests takes time")
        if self.reserved < 0 or self.input_cores < 0:
            raise ValueError("reserved cores are not negative")
        if self.rest is not None and self.rest <= 0:
            raise ValueError("a rest takes time")
        if not self.synchronized and self.bins is None:
            raise ValueError("without synchronization there are bins")


ORIGINAL = Method("original")


def fused(job: Job) -> tuple[tuple[int, ...], ...]:
    """Bins up to the fusion threshold of tensors that become ready together: what TOPO may fuse
    without making a tensor wait for a later one."""
    bins: list[list[int]] = []
    for phase in job.phases:
        current: list[int] = []
        size = 0
        for tensor in phase.tensors:
            if not current or size + job.tensors[tensor] > job.fusion_threshold:
                bins.append(current := [])
                size = 0
            current.append(tensor)
            size += job.tensors[tensor]
    return tuple(map(tuple, bins))
