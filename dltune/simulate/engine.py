"""Simulate a graph of ops under a policy (the hot loop is engine.h).

A *task* is one node of a graph; it runs an op `runs` times. Two policies: `fifo`, TensorFlow's own
scheduling, and `corun`, strategies 3 and 4 of section III-D by the code that a job is run with.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from dltune.documents.machine import Machine
from dltune.graph.csr import CSR, Integers, Numbers
from dltune.simulate import library
from dltune.simulate.work import CorunWork, FifoWork, bits, topology


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


class Graph:
    """A DAG of tasks.

    Row t of `successors`: the tasks that wait for t, each once. `op[t]`: the index of its op,
    negative for a task without work. `runs[t]`: how often it runs its op.
    """

    def __init__(self, successors: CSR, op: Integers, runs: Numbers) -> None:
        self.tasks = len(successors)
        self._arrays = successors.offsets, successors.items, op, runs  # which the struct points to
        offsets, edges, ops = (a.ctypes.data_as(library.INTEGERS) for a in self._arrays[:3])
        times = runs.ctypes.data_as(library.DOUBLES)
        self._native = library.Graph(self.tasks, offsets, edges, ops, times)

    def fifo(
        self,
        ops: Sequence[FifoWork],
        *,
        cores: int,
        inter: int,
        overhead: float = 0.0,
        oversubscription: float = 0.0,
        crowding: float = 1.0,
    ) -> Timeline:
        """TensorFlow's own scheduling: first in, first out, in `inter` executor slots.

        `overhead`: seconds the executor adds to each run of an op, on one core. Ops that keep
        more cores busy than the machine has share them; `oversubscription` slows them further, by
        that part for each thread above the number of cores, relative to that number. `crowding`:
        the factor by which ops are slower that run side by side, each on cores of its own.
        Raises ValueError when the graph has a cycle.
        """
        table = (library.FifoOp * max(1, len(ops)))(
            *(library.FifoOp(op.seconds, op.busy, op.threads) for op in ops)
        )
        about = library.Fifo(table, cores, inter, overhead, oversubscription, crowding)
        timeline = self._timeline()
        self._whole(library.load().dltune_fifo(self._native, about, timeline))
        return Timeline(*self._times(timeline))

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
        table = (library.Work * max(1, len(ops)))(*(op.native() for op in ops))
        about = library.Corun(table, len(ops), inter, overhead, crowding, corun, hyperthreads)
        held = (ctypes.c_uint64 * (self.tasks * words))() if with_cores else None
        second = (ctypes.c_uint8 * max(1, self.tasks))()
        places = library.Places(held, words, second)
        timeline = self._timeline()
        self._whole(library.load().dltune_corun(self._native, there, about, timeline, places))
        sets: list[tuple[int, ...]] = []
        if held is not None:
            sets = [bits(held[t * words : (t + 1) * words]) for t in range(self.tasks)]
        ran_second = frozenset(t for t in range(self.tasks) if second[t])
        return Timeline(*self._times(timeline), sets, ran_second)

    def _timeline(self) -> library.Timeline:
        room = max(1, self.tasks)
        return library.Timeline((ctypes.c_double * room)(), (ctypes.c_double * room)())

    def _times(self, made: library.Timeline) -> tuple[list[float], list[float], float, float]:
        return made.start[: self.tasks], made.end[: self.tasks], made.makespan, made.corunning

    def _whole(self, done: int) -> None:
        if done < self.tasks:
            raise ValueError(f"{self.tasks - done} tasks wait for each other in a cycle")
