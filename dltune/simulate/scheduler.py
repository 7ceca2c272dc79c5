"""The scheduler that jobs and simulations share (corun.h), step by step from Python."""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass

from dltune.documents.machine import Machine
from dltune.simulate import simulate_binding as binding
from dltune.simulate.work import CorunWork, bits, topology


@dataclass(frozen=True)
class Admission:
    """An op that may start: on `cores`, or (`second`) on the second hardware thread of one."""

    ticket: int
    threads: int
    seconds: float
    second: bool
    cores: tuple[int, ...]


class Scheduler:
    """Strategies 3 (`corun`) and 4 (`hyperthreads`) on an idle machine (section III-D)."""

    def __init__(self, machine: Machine, *, corun: bool = True, hyperthreads: bool = False) -> None:
        there = topology(machine)
        self._native = binding.load()
        self._words = (there.count + 63) // 64
        self._waiting = 0
        self._handle = self._native.dltune_scheduler_new(there, corun, hyperthreads)
        weakref.finalize(self, self._native.dltune_scheduler_delete, self._handle)

    def ready(self, ticket: int, work: CorunWork) -> None:
        self._waiting += 1
        self._native.dltune_scheduler_ready(self._handle, ticket, ctypes.byref(work.native()))

    def finished(self, ticket: int, now: float) -> None:
        self._native.dltune_scheduler_finished(self._handle, ticket, now)

    def avoid(self, a: int, b: int) -> None:
        """The ops `a` and `b` never run together from now on."""
        self._native.dltune_scheduler_avoid(self._handle, a, b)

    def avoided(self, a: int, b: int) -> bool:
        return bool(self._native.dltune_scheduler_avoided(self._handle, a, b))

    def decide(self, now: float) -> list[Admission]:
        """What starts at `now` (seconds), in the order of the decisions."""
        room = max(1, self._waiting)
        ticket = (ctypes.c_uint64 * room)()
        threads = (ctypes.c_int32 * room)()
        seconds = (ctypes.c_double * room)()
        second = (ctypes.c_uint8 * room)()
        held = (ctypes.c_uint64 * (room * self._words))()
        count = self._native.dltune_scheduler_decide(
            self._handle, now, room, ticket, threads, seconds, second, held, self._words
        )
        self._waiting -= count
        return [
            Admission(
                ticket=ticket[i],
                threads=threads[i],
                seconds=seconds[i],
                second=bool(second[i]),
                cores=bits(held[i * self._words : (i + 1) * self._words]),
            )
            for i in range(count)
        ]
