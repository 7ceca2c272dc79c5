"""Turns in which the machine was kept from both sides.

CPU time that the hypervisor takes is no change's doing (except where a machine has credits for CPU
time). Such turns are taken again, those of both sides together, so that the kept turns show as much
of one side as of the other. A CPU quota or a lack of memory can be the change's own doing: it is
reported, and counts.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable

from dltune.system import kernel_files
from dltune.system.proc.stat import TICK, stolen
from dltune.watch.host import PressureWatch

# of the CPUs' time in a turn, or of the time for what waited for memory
SHARE = 0.05
# most turns taken again, per turn that counts; a machine that is always so is measured as it is
MOST = 0.5


class Disturbance:
    """Check of the machine from turn to turn. `again`: turns of both sides that were taken again;
    `kept`: those that count. `during` counts, of these, those in which something was in the way."""

    def __init__(self) -> None:
        self.again = self.kept = 0
        self.during: Counter[str] = Counter()

    def turn(self) -> Callable[[], bool]:
        """Begin both sides' turns. The returned function returns True, once they are over, if they
        must be taken again."""
        since, before, standing = time.monotonic(), stolen(), kernel_files.throttled(os.getpid())
        pressure = PressureWatch(os.getpid())

        def over() -> bool:
            most = SHARE * max(time.monotonic() - since, TICK)
            taken = stolen() - before > most * (os.cpu_count() or 1)
            if taken and self.again < MOST * (self.kept + 1):
                self.again += 1
                return True
            self.kept += 1
            self.during["the hypervisor gave CPU time to other machines"] += taken
            stood = kernel_files.throttled(os.getpid())
            if stood is not None and standing is not None:
                cpus = len(os.sched_getaffinity(0))
                self.during["the CPU quota was used up"] += stood - standing > most * cpus
            self.during["memory was short of demand"] += any(
                one.some > SHARE for one in pressure.shares() if one.resource == "memory"
            )
            return False

        return over

    @property
    def notes(self) -> list[str]:
        """Return notes about it, sentences."""
        turns = f"{self.again} pair{'s' * (self.again > 1)} of turns"
        again = f"{turns} repeated because the hypervisor gave CPU time to other machines"
        told = [again] if self.again else []
        of = f"of {self.kept} pairs of turns"
        return told + [f"{why} in {count} {of}" for why, count in self.during.items() if count]
