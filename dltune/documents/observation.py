"""What was seen of a job while it ran under its own settings: cores, memory, Python, graphs.

Times are seconds, sizes bytes. *Cores* are CPU seconds a second. None is "could not be seen"; why
not stands in `Observation.unseen`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from dltune.documents.faults import AMOUNT, SHARE, at_least, each, repeated
from dltune.documents.profile import Line, Ratio

# what a main thread of Python is at
Activity = Literal[
    "step",  # its graph runs
    "tracing",  # a graph is traced, or compiled
    "input",  # it waits for the next batch
    "queue",  # or for what another thread or process of the job puts into a queue
    "reading",  # it takes figures out of tensors
    "eager",  # it runs a single op
    "saving",
    "validation",
    "fit",  # Keras prepares and ends a step
    "call",  # a step is called, before or after its graph
    "python",  # anything else
]


class Share(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`share` of the looks at the main thread that found it at this. `lines` of the job's own, the
    most frequent first, each with its share of all looks."""

    activity: Activity
    share: float
    lines: tuple[Line, ...]


class Python(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`shares` add up to 1. `generator`: of the looks, those at which another thread ran Python for
    the input pipeline; `generator_lines` as `Share.lines`."""

    pid: int
    looks: int
    shares: tuple[Share, ...]
    generator: float
    generator_lines: tuple[Line, ...]


class Process(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of the job, over the `seconds` that it was seen.

    `cpu`: cores that it had, `kernel`: those of them in the kernel; `queued`: cores that its
    threads were ready for and did not have. `cpus`: those that any of its threads may run on;
    `ranks`: how many of the job there are on this node, as a launcher told it, None without one.
    `framework`: what it has loaded, as documents call it; `intra`, `inter`: its threads, None where
    it has not told. `faults`: minor page faults a second. `resident`: bytes in memory at the
    end, without those of files; `growth`: of them, bytes a second, None where it was not seen for
    long enough, or has ended. `parent`: the pid of the process that started it.
    """

    pid: int
    command: str
    seconds: float
    cpu: float
    kernel: float
    queued: float | None
    threads: int
    cpus: tuple[int, ...]
    ranks: int | None
    intra: int | None
    inter: int | None
    faults: float
    resident: int
    growth: float | None
    framework: str | None = None
    parent: int | None = None

    @property
    def waited(self) -> float:
        """Of the CPU time that its threads wanted, the share that they did not have."""
        wanted = self.cpu + (self.queued or 0.0)
        return (self.queued or 0.0) / wanted if wanted > 0 else 0.0


class Neighbour(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process that is not the job's. `cpu`: cores that it had."""

    pid: int
    command: str
    cpu: float


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`cpus`: those that a job can have here, if nothing binds it, of the machine's `online` ones;
    `quota`: the tightest limit on the job's CPU time, in cores; `throttled`: share of the time that
    it stood still for it. `others`: cores that processes which are not the job's had of those that
    the job may run on, `neighbours` those with the most of any; `stolen`: cores that the hypervisor
    gave to other machines. `available`: bytes of memory that may still be had; `memory_limit`:
    bytes that the job's control group may have, and `reclaims`: how often a second it came to that
    limit. `hyperthreads`: the CPUs of each core that has several of `cpus`."""

    cpus: tuple[int, ...]
    online: int
    quota: float | None
    throttled: float | None
    others: float
    neighbours: tuple[Neighbour, ...]
    stolen: float
    memory_limit: int | None
    reclaims: float
    available: int
    hyperthreads: tuple[tuple[int, ...], ...] = ()

    def cores(self, cpus: Iterable[int]) -> int:
        """How many cores so many CPUs are of."""
        core = {cpu: group[0] for group in self.hyperthreads for cpu in group}
        return len({core.get(cpu, cpu) for cpu in cpus})


class Graphs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of the process that trains. `traced`: graphs that it made during the watch; `once`: those of
    them that ran at most once; `again`: those of the function of which it made the most. `eager`:
    seconds of ops that ran one by one, `waited` of those of them that waited for input (None where
    nobody counts these). XLA compiled clusters for so many new sets of input shapes
    (`compilations`), for `compiling` seconds. `steps` of PyTorch's optimizers ended. In `denormal`
    of `denormal_looks` its main thread had computed with denormal numbers since the look before.
    `flushed`: time of a step in which these were taken for zero over one before, where it was
    tried. `period`: seconds from one step to the next, in the mean, while nothing was recorded,
    once its ops had been measured (None: not known)."""

    traced: int
    once: int
    eager: float
    again: int = 0
    compilations: int = 0
    compiling: float = 0.0
    steps: int = 0
    denormal_looks: int = 0
    denormal: int = 0
    flushed: Ratio | None = None
    waited: float | None = None
    period: float | None = None


class Observation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Over so many `seconds`. `cost`: share of one CPU that it took to watch."""

    seconds: float
    host: Host
    processes: tuple[Process, ...]
    python: Python | None
    graphs: Graphs | None
    cost: float
    unseen: tuple[str, ...]

    @property
    def disturbed(self) -> float:
        """The share of its cores that others had."""
        taken = self.host.others / self.cores + self.host.stolen / self.host.online
        return min(1.0, taken)

    @property
    def cores(self) -> int:
        """The CPUs that any process of the job may run on."""
        allowed = {cpu for one in self.processes for cpu in one.cpus}
        return max(1, len(allowed or self.host.cpus))

    @property
    def main(self) -> Process | None:
        """The process that trains, or works most."""
        trains = [one for one in self.processes if one.intra is not None]
        return max(trains or self.processes, key=lambda one: one.cpu, default=None)

    def room(self, process: Process) -> float:
        """The CPUs that a process may run on, or as many as the quota pays for."""
        return min(len(process.cpus), self.host.quota or math.inf)

    def idle(self, process: Process, *others: Process) -> float:
        """The share of them that it did not use, nor did `others`; 0 where they are not known."""
        used = sum(one.cpu for one in (process, *others))
        return max(0.0, 1 - used / self.room(process)) if process.cpus else 0.0

    def descendants(self, process: Process) -> list[Process]:
        """What it has started, and what these have; all others where no parents were noted."""
        if all(one.parent is None for one in self.processes):
            return [one for one in self.processes if one is not process]
        below: set[int | None] = {process.pid}
        while new := {one.pid for one in self.processes if one.parent in below} - below:
            below |= new
        return [one for one in self.processes if one.pid in below and one is not process]


def faults(observation: Observation) -> Iterator[str]:
    """All that cannot be true, one sentence each, the field's path first."""
    yield from AMOUNT.of("observation", observation, "seconds", "cost")
    host = observation.host
    yield from AMOUNT.of("observation.host", host, "quota", "others", "stolen", "memory_limit")
    yield from SHARE.of("observation.host", host, "throttled")
    here = "observation.processes"
    yield from repeated(here, "pid", (one.pid for one in observation.processes))
    for at, one in each(here, observation.processes):
        yield from AMOUNT.of(at, one, "seconds", "cpu", "kernel", "queued", "faults", "resident")
        yield from at_least(1).of(at, one, "intra", "inter")
    if observation.graphs is not None:
        at = "observation.graphs.flushed"
        yield from AMOUNT.of(at, observation.graphs.flushed, "low", "median")
    if observation.python is not None:
        yield from SHARE.of("observation.python", observation.python, "generator")
        for at, share in each("observation.python.shares", observation.python.shares):
            yield from SHARE.of(at, share, "share")
