"""Chance differences between two processes of the same code, made alike for both sides of a round.

Only properties that no change of the code can mean are made alike, unless the configuration asks
for an allocator: an allocator that keeps freed memory hides page faults. The place of memory is
sampled, not frozen: the kernel draws new addresses at each start, so that no side has one layout,
good or bad, for all its rounds, and a harmless edit that moves something is not slower for ever.
Paths and variables of the two checkouts have the same lengths, since the stack begins behind them
(docs/explanation/decisions/gate-launches.md).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from dltune.gate.config import AS_FOUND, Config, Limit
from dltune.gate.side import Side
from dltune.plan.settings.applied import Applied, means_of, set_by_user
from dltune.plan.settings.setting import Circumstances
from dltune.plan.settings.space import by_name
from dltune.schemas.gate import Kind
from dltune.schemas.machine import Machine
from dltune.schemas.settings import Choice
from dltune.system.kernel_files import text

HASH_SEED = "PYTHONHASHSEED"
# metrics that an allocator which keeps what is freed would change: by the kind of command
_OF_MEMORY = {"steps": ("page_faults",), "whole": ("page_faults", "peak_bytes")}


def alike(
    config: Config, kind: Kind, limits: Sequence[Limit], machine: Machine, sides: Sequence[Side]
) -> tuple[Callable[[], dict[str, str]], list[str]]:
    """Return a function that gives both sides' additional variables for the next round, and notes
    about it, sentences. One side alone is measured as it is: its baseline must hold for
    whoever is compared with it.

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
