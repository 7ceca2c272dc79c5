"""The scheduler that jobs and simulations share (corun.h), step by step from Python."""

from __future__ import annotations

import ctypes
import functools
import weakref
from ctypes import POINTER, c_double, c_int, c_uint8, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path

from dltune.native.binding import bound
from dltune.schemas.machine import Machine
from dltune.simulate.engine import CorunWork, bits, topology


@dataclass(frozen=True)
class Admission:
    """An op that may start: on `cores`, or (`second`) on the second hardware thread of one."""

    ticket: int
    threads: int
    seconds: float
    second: bool
    cores: tuple[int, ...]


@functools.cache
def native() -> ctypes.CDLL:
    import dltune.native

    ints, doubles, words = POINTER(c_int), POINTER(c_double), POINTER(c_uint64)
    return bound(
        "scheduler",
        # native/'s headers for the digest alone: any change of one builds this anew
        [
            Path(__file__).with_suffix(".cc"),
            Path(dltune.native.__path__[0]) / "corun.h",
        ],
        "the scheduler",
        {
            "scheduler_new": (c_void_p, ints, ints, c_int, c_double, c_int, c_int),
            "scheduler_delete": (None, c_void_p),
            "scheduler_avoid": (None, c_void_p, c_int, c_int),
            "scheduler_avoided": (c_int, c_void_p, c_int, c_int),
            "scheduler_ready": (
                *(None, c_void_p, c_uint64, c_int, c_double),
                *(c_int, ints, ints, doubles),
            ),
            "scheduler_finished": (None, c_void_p, c_uint64, c_double),
            "scheduler_decide": (
                *(c_int, c_void_p, c_double, c_int, words, ints, doubles),
                *(POINTER(c_uint8), words, c_int),
            ),
        },
    )


class Scheduler:
    """Strategies 3 (`corun`) and 4 (`hyperthreads`) on an idle machine (section III-D)."""

    def __init__(self, machine: Machine, *, corun: bool = True, hyperthreads: bool = False) -> None:
        there = topology(machine)
        self._native = native()
        self._words = (there.count + 63) // 64
        self._waiting = 0
        cores = there.tile, there.hardware, there.count, there.smt_throughput
        self._handle = self._native.scheduler_new(*cores, corun, hyperthreads)
        weakref.finalize(self, self._native.scheduler_delete, self._handle)

    def ready(self, ticket: int, work: CorunWork, op: int = -1) -> None:
        """`op` names its key for interference (negative: none is noted)."""
        self._waiting += 1
        ways = (work.choice, *work.candidates)
        count = len(ways)
        self._native.scheduler_ready(
            *(self._handle, ticket, op, work.serial, count),
            (c_int * count)(*(way.threads for way in ways)),
            (c_int * count)(*(way.placement == "shared" for way in ways)),
            (c_double * count)(*(way.seconds for way in ways)),
        )

    def finished(self, ticket: int, now: float) -> None:
        self._native.scheduler_finished(self._handle, ticket, now)

    def avoid(self, a: int, b: int) -> None:
        """The ops `a` and `b` never run together from now on."""
        self._native.scheduler_avoid(self._handle, a, b)

    def avoided(self, a: int, b: int) -> bool:
        return bool(self._native.scheduler_avoided(self._handle, a, b))

    def decide(self, now: float) -> list[Admission]:
        """What starts at `now` (seconds), in the order of the decisions."""
        room = max(1, self._waiting)
        ticket = (c_uint64 * room)()
        threads = (c_int * room)()
        seconds = (c_double * room)()
        second = (c_uint8 * room)()
        held = (c_uint64 * (room * self._words))()
        count = self._native.scheduler_decide(
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
