"""What a policy knows about an op."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from dltune.base.errors import UsageError
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Candidate
from dltune.simulate import simulate_binding as binding

MAX_CORES = 1024  # corun.h's kMaxCores


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
