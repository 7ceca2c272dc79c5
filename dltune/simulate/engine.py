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
        integers, doubles = (ctypes.POINTER(kind) for kind in (ctypes.c_int32, ctypes.c_double))
        self._offsets = successors.offsets.ctypes.data_as(integers)
        self._edges = successors.items.ctypes.data_as(integers)
        self._op = op.ctypes.data_as(integers)
        self._runs = runs.ctypes.data_as(doubles)

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
        start, end, totals = self._results()
        done = library.load().dltune_fifo(
            self.tasks,
            self._offsets,
            self._edges,
            self._op,
            self._runs,
            table,
            cores,
            inter,
            overhead,
            oversubscription,
            crowding,
            start,
            end,
            totals,
        )
        self._whole(done)
        return Timeline(start[: self.tasks], end[: self.tasks], totals[0], totals[1])

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
        tile, hardware = topology(machine)
        cores = len(tile)
        words = (cores + 63) // 64
        table = (library.Work * max(1, len(ops)))(*(op.native() for op in ops))
        start, end, totals = self._results()
        held = (ctypes.c_uint64 * (self.tasks * words))() if with_cores else None
        second = (ctypes.c_uint8 * max(1, self.tasks))()
        done = library.load().dltune_corun(
            self.tasks,
            self._offsets,
            self._edges,
            self._op,
            self._runs,
            len(ops),
            table,
            cores,
            (ctypes.c_int32 * cores)(*tile),
            (ctypes.c_int32 * cores)(*hardware),
            inter,
            overhead,
            crowding,
            corun,
            hyperthreads,
            machine.smt_throughput or 0.0,
            start,
            end,
            totals,
            held,
            words,
            second,
        )
        self._whole(done)
        sets: list[tuple[int, ...]] = []
        if held is not None:
            sets = [bits(held[t * words : (t + 1) * words]) for t in range(self.tasks)]
        return Timeline(
            start[: self.tasks],
            end[: self.tasks],
            totals[0],
            totals[1],
            sets,
            frozenset(t for t in range(self.tasks) if second[t]),
        )

    def _results(self) -> tuple[ctypes.Array[ctypes.c_double], ...]:
        room = max(1, self.tasks)
        return (
            (ctypes.c_double * room)(),
            (ctypes.c_double * room)(),
            (ctypes.c_double * 2)(),
        )

    def _whole(self, done: int) -> None:
        if done < self.tasks:
            raise ValueError(f"{self.tasks - done} tasks wait for each other in a cycle")
