"""Simulation of a graph of ops under a scheduling policy (the hot loop is engine.h).

A *task* is one node of a graph; it runs an op `runs` times. There are two policies: `fifo`,
TensorFlow's own scheduling, and `corun`, strategies 3 and 4 of section III-D by the code that a job
is run with.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dltune.base.errors import UsageError
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Candidate
from dltune.simulate import simulate_binding as binding
from dltune.simulate.step_graph import CSR, Integers, Numbers

MAX_CORES = 1024  # corun.h's kMaxCores

# The properties of an op that a policy uses


@dataclass(frozen=True)
class FifoWork:
    """An op under TensorFlow's own scheduling.

    `seconds` on `threads` threads, which keep `busy` cores busy on average. `busy` 0: it holds
    neither a core nor an executor slot, like an asynchronous kernel.
    """

    seconds: float
    busy: float
    threads: int


@dataclass(frozen=True)
class CorunWork:
    """An op under strategies 3 and 4.

    `choice` is strategy 2's, `candidates` (three at most) strategy 3's, best first. `serial`:
    seconds on one thread. An op that is not `admitted` is small: it runs serially, at once, on the
    least loaded core; or it is `placed`, and runs as chosen, at once, on these cores, which it
    shares with whatever runs there. A `detached` one takes `serial` seconds and holds neither core
    nor slot.
    """

    serial: float
    choice: Candidate
    candidates: tuple[Candidate, ...] = ()
    admitted: bool = True
    detached: bool = False
    placed: tuple[int, ...] = ()

    def native(self) -> binding.Work:
        work = binding.Work(
            count=len(self.candidates),
            serial=self.serial,
            admitted=self.admitted and not self.placed,
            detached=self.detached,
            cores=(ctypes.c_int32 * len(self.placed))(*self.placed),
            placed=len(self.placed),
        )
        for k, candidate in enumerate((self.choice, *self.candidates)):
            work.seconds[k] = candidate.seconds
            work.threads[k] = candidate.threads
            work.shared[k] = candidate.placement == "shared"
        return work


def topology(machine: Machine) -> binding.Cores:
    """Per core: its tile counted from 0, and its hardware threads.

    Raises UsageError when the machine has more cores than the scheduler can name.
    """
    if len(machine.cores) > MAX_CORES:
        raise UsageError(
            f"{machine.name} has {len(machine.cores)} cores; the simulator supports at most "
            f"{MAX_CORES}",
            remedy=f"use --cores {MAX_CORES} or fewer",
        )
    index = {tile: i for i, tile in enumerate(sorted({core.tile for core in machine.cores}))}
    count = len(machine.cores)
    return binding.Cores(
        count,
        (ctypes.c_int32 * count)(*(index[core.tile] for core in machine.cores)),
        (ctypes.c_int32 * count)(*(max(1, len(core.cpus)) for core in machine.cores)),
        machine.smt_throughput or 0.0,
    )


def bits(words: Sequence[int]) -> tuple[int, ...]:
    """The core indices in a bit set of 64-bit words."""
    return tuple(
        64 * i + b for i, word in enumerate(words) if word for b in range(64) if word >> b & 1
    )


# Graphs, the resources that they run on, and the results


@dataclass(frozen=True)
class Timeline:
    """A simulated execution, times in seconds since its start.

    `start` and `end` per task; `cores` the core indices a task held (empty for `fifo`, where the
    operating system moves threads, and for tasks without work), `second` the tasks that ran on a
    second hardware thread. `corunning`: the mean number of ops in flight over the events (an op
    starts or ends; Fig. 4), each counted when all that happens at its moment has happened.
    """

    start: Sequence[float]
    end: Sequence[float]
    makespan: float
    corunning: float
    cores: Sequence[tuple[int, ...]] = ()
    second: frozenset[int] = frozenset()


@dataclass(frozen=True)
class CoreSet:
    """One device's cores under its framework's own scheduling: ops run first in, first out, in
    `inter` executor slots.

    `overhead`: seconds the executor adds to each run of an op, on one core. Ops that keep more
    cores busy than there are share them; `oversubscription` slows them further, by that part for
    each thread above the number of cores, relative to that number. `crowding`: the factor by which
    ops are slower that run side by side, each on cores of its own.
    """

    ops: Sequence[FifoWork]
    cores: int
    inter: int
    overhead: float = 0.0
    oversubscription: float = 0.0
    crowding: float = 1.0

    def native(self) -> binding.Fifo:
        table = (binding.FifoOp * max(1, len(self.ops)))(
            *(binding.FifoOp(op.seconds, op.busy, op.threads) for op in self.ops)
        )
        costs = self.overhead, self.oversubscription, self.crowding
        return binding.Fifo(table, self.cores, self.inter, *costs)


@dataclass(frozen=True)
class Link:
    """What transfers travel over: `bandwidth` in bytes a second, `latency` in seconds, which each
    transfer takes besides. At most `channels` travel at once and share the link evenly, their
    latencies too. The next is the first that came; with `by_priority` the one with the lowest
    number of those that wait."""

    bandwidth: float
    latency: float = 0.0
    channels: int = 1
    by_priority: bool = False

    def native(self) -> binding.Link:
        return binding.Link(self.bandwidth, self.latency, self.channels, self.by_priority)


@dataclass(frozen=True, eq=False)
class Network:
    """Hosts that send each other over links of their own, one out and one in each. By channel, the
    hosts that are its `sender` and its `receiver`.

    A channel has one transfer under way, of those that wait the one with the lowest priority
    number; channels under way at once share the links max-min fairly.
    """

    sender: Integers
    receiver: Integers

    def native(self) -> binding.Network:
        ends = (end.ctypes.data_as(binding.INTEGERS) for end in (self.sender, self.receiver))
        hosts = 1 + max(self.sender.max(initial=-1), self.receiver.max(initial=-1))
        return binding.Network(*ends, len(self.sender), hosts)


class Graph:
    """A DAG of tasks.

    Row t of `successors`: the tasks that wait for t, each once. `op[t]`: the index of its op,
    negative for a task without work. `runs[t]`: how often it runs its op.
    """

    def __init__(self, successors: CSR, op: Integers, runs: Numbers) -> None:
        self.tasks = len(successors)
        self._arrays = successors.offsets, successors.items, op, runs  # which the struct points to
        offsets, edges, ops = (a.ctypes.data_as(binding.INTEGERS) for a in self._arrays[:3])
        times = runs.ctypes.data_as(binding.DOUBLES)
        self._native = binding.Graph(self.tasks, offsets, edges, ops, times)

    def fifo(self, cores: CoreSet) -> Timeline:
        """TensorFlow's own scheduling. Raises ValueError when the graph has a cycle."""
        return self._replay("dltune_fifo", cores.native())

    def on(
        self,
        core_sets: Sequence[CoreSet],
        links: Sequence[Link],
        where: Integers,
        bytes: Numbers,
        priority: Numbers | None = None,
    ) -> Timeline:
        """On several devices and the links between them.

        `where[t]`: which of `core_sets` task t runs on, or, counted from their number on, which of
        `links` it travels over; then it has no op but `bytes[t]`, and `priority[t]`. Raises
        ValueError when the graph has a cycle.
        """
        cores = (binding.Fifo * max(1, len(core_sets)))(*(one.native() for one in core_sets))
        lines = (binding.Link * max(1, len(links)))(*(one.native() for one in links))
        order = np.zeros(self.tasks) if priority is None else priority
        about = binding.Resources(
            where.ctypes.data_as(binding.INTEGERS),
            bytes.ctypes.data_as(binding.DOUBLES),
            order.ctypes.data_as(binding.DOUBLES),
            cores,
            lines,
            len(core_sets),
            len(links),
        )
        return self._replay("dltune_resources", about)

    def across(
        self,
        core_sets: Sequence[CoreSet],
        network: Network,
        where: Integers,
        seconds: Numbers,
        priority: Numbers,
    ) -> Timeline:
        """On several hosts and the network between them.

        `where[t]`: which of `core_sets` task t runs on, or, counted from their number on, which of
        the network's channels it travels over; then it has no op but `seconds[t]`, which it takes
        where it shares no link, and `priority[t]`. Raises ValueError when the graph has a cycle.
        """
        cores = (binding.Fifo * max(1, len(core_sets)))(*(one.native() for one in core_sets))
        about = binding.Cluster(
            where.ctypes.data_as(binding.INTEGERS),
            seconds.ctypes.data_as(binding.DOUBLES),
            priority.ctypes.data_as(binding.DOUBLES),
            cores,
            network.native(),
            len(core_sets),
        )
        return self._replay("dltune_cluster", about)

    def corun(
        self,
        ops: Sequence[CorunWork],
        machine: Machine,
        *,
        inter: int,
        overhead: float = 0.0,
        crowding: float = 1.0,
        corun: bool = True,
        hyperthreads: bool = False,
        with_cores: bool = False,
    ) -> Timeline:
        """Strategy 3 and, with `hyperthreads`, strategy 4 on the machine's cores.

        At most `inter` ops are running or waiting for admission. Two tasks on one core share it,
        or share `machine.smt_throughput` times its throughput where it has hardware threads.
        `crowding`: the factor by which an op is slower while others run beside it.
        `with_cores`: also record which cores each task held.
        Raises ValueError when the graph has a cycle.
        """
        there = topology(machine)
        words = (there.count + 63) // 64
        table = (binding.Work * max(1, len(ops)))(*(op.native() for op in ops))
        about = binding.Corun(table, len(ops), inter, overhead, crowding, corun, hyperthreads)
        held = (ctypes.c_uint64 * (self.tasks * words))() if with_cores else None
        second = (ctypes.c_uint8 * max(1, self.tasks))()
        places = binding.Places(held, words, second)
        timeline = self._replay("dltune_corun", there, about, places)
        if held is None:
            return timeline
        return replace(
            timeline,
            cores=[bits(held[t * words : (t + 1) * words]) for t in range(self.tasks)],
            second=frozenset(t for t in range(self.tasks) if second[t]),
        )

    def _replay(self, function: str, *about: ctypes.Structure) -> Timeline:
        room = max(1, self.tasks)
        made = binding.Timeline((ctypes.c_double * room)(), (ctypes.c_double * room)())
        getattr(binding.load(), function)(self._native, *about, made)
        if made.done < self.tasks:
            raise ValueError(f"{self.tasks - made.done} tasks wait for each other in a cycle")
        start, end = made.start[: self.tasks], made.end[: self.tasks]
        return Timeline(start, end, made.makespan, made.corunning)
