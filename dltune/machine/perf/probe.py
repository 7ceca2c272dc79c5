"""May this process open performance counters? Asked of the kernel, by opening one of each kind."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from dltune.machine.perf import syscall
from dltune.machine.perf.events import HARDWARE, SOFTWARE
from dltune.machine.perf.refusal import Refused, paranoid_level, refusal


@dataclass(frozen=True)
class PerfEvents:
    """What can be counted in this process's own user space.

    `hardware` and `software`: None when such a counter can be opened and counts.
    `paranoid`: the level of kernel.perf_event_paranoid; None when the kernel has no perf events.
    """

    hardware: Refused | None
    software: Refused | None
    paranoid: int | None


def available(root: Path = Path("/")) -> PerfEvents:
    """Opens, and closes, one hardware and one software counter; `root`: where `proc` is found."""
    paranoid = paranoid_level(root)
    return PerfEvents(
        hardware=_probe(syscall.TYPE_HARDWARE, HARDWARE["instructions"], paranoid),
        software=_probe(syscall.TYPE_SOFTWARE, SOFTWARE["page-faults"], paranoid),
        paranoid=paranoid,
    )


def _probe(kind: int, config: int, paranoid: int | None) -> Refused | None:
    if platform.machine() not in syscall.NUMBERS:
        return Refused(
            "the number of perf_event_open is not known for this architecture",
            "measure on another architecture",
        )
    try:
        handle = syscall.perf_event_open(
            kind, config, flags=syscall.EXCLUDE_KERNEL | syscall.EXCLUDE_HV
        )
    except OSError as error:
        return refusal(error.errno or 0, paranoid)
    try:
        counted = int.from_bytes(os.read(handle, 8), sys.byteorder)
    finally:
        os.close(handle)
    # some hypervisors accept a hardware counter and never count
    if kind == syscall.TYPE_HARDWARE and counted == 0:
        return Refused(
            "the counter opens but does not count, as under some hypervisors",
            "nothing, if times are enough; else measure on bare metal",
        )
    return None
