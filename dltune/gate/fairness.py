"""Fair conditions for both sides of a gate: disturbed turns again, and chance differences alike."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from dltune.gate.checkouts import Side
from dltune.gate.limits import AS_FOUND, Config, Limit
from dltune.plan.settings.choices import Applied, means_of, set_by_user
from dltune.plan.settings.setting import Circumstances
from dltune.plan.settings.space import by_name
from dltune.schemas.gate import Kind
from dltune.schemas.machine import Machine
from dltune.schemas.settings import Choice
from dltune.system import kernel_files
from dltune.system.kernel_files import text
from dltune.system.proc.stat import TICK, stolen
from dltune.watch.host import PressureWatch

# Turns in which the machine was kept from both sides

# of the CPUs' time in a turn, or of the time for what waited for memory
SHARE = 0.05
# most turns taken again, per turn that counts; a machine that is always so is measured as it is
MOST = 0.5


class Disturbance:
    """Check of the machine from turn to turn.

    CPU time that the hypervisor takes is no change's doing (except where a machine has credits for
    CPU time). Such turns are taken again, those of both sides together, so that the kept turns show
    as much of one side as of the other. A CPU quota or a lack of memory can be the change's own
    doing: it is reported, and counts.

    `again`: turns of both sides that were taken again; `kept`: those that count. `during` counts,
    of these, those in which something was in the way.
    """

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


# Chance differences between two processes of the same code, made alike for both sides of a round

HASH_SEED = "PYTHONHASHSEED"
# metrics that an allocator which keeps what is freed would change: by the kind of command
_OF_MEMORY = {"steps": ("page_faults",), "whole": ("page_faults", "peak_bytes")}


def alike(
    config: Config, kind: Kind, limits: Sequence[Limit], machine: Machine, sides: Sequence[Side]
) -> tuple[Callable[[], dict[str, str]], list[str]]:
    """Return a function that gives both sides' additional variables for the next round, and notes
    about it, sentences. One side alone is measured as it is: its baseline must hold for
    whoever is compared with it.

    Only properties that no change of the code can mean are made alike, unless the configuration
    asks for an allocator: an allocator that keeps freed memory hides page faults. The place of
    memory is sampled, not frozen: the kernel draws new addresses at each start, so that no side has
    one layout, good or bad, for all its rounds, and a harmless edit that moves something is not
    slower for ever. Paths and variables of the two checkouts have the same lengths, since the stack
    begins behind them (docs/explanation/decisions/gate-launches.md).

    Raises UsageError when the allocator that the configuration names is not available.
    """
    if len(sides) < 2:
        return dict, []
    notes: list[str] = []
    kept = _allocator(config, kind, limits, machine, sides[0].command, notes)
    drawn = config.hash_seed == "random" and HASH_SEED not in os.environ
    if text(Path("/proc/sys/kernel/randomize_va_space")) == "0":
        notes.append(
            "address randomisation is off (kernel.randomize_va_space is 0): the memory layout can "
            "make one side faster in all rounds"
        )

    def variables() -> dict[str, str]:
        seed = {HASH_SEED: str(random.getrandbits(32))} if drawn else {}
        return {**kept, **seed}

    return variables, notes


def _allocator(
    config: Config,
    kind: Kind,
    limits: Sequence[Limit],
    machine: Machine,
    command: Sequence[str],
    notes: list[str],
) -> dict[str, str]:
    if config.allocator == AS_FOUND:
        return {}
    if of_memory := [one.metric for one in limits if one.metric in _OF_MEMORY[kind]]:
        notes.append(f"the allocator stays unchanged because {of_memory[0]} is measured")
        return {}
    setting = by_name("allocator")
    here = Circumstances(machine, tuple(command), os.environ)
    if told := set_by_user(setting, here):
        notes.append(f"the allocator stays unchanged because the user sets it: {told}")
        return {}
    choice = Choice(setting.name, config.allocator)
    return Applied((choice,), means_of([choice], here)).environment(os.environ)
