"""Memory that may still be taken, under the limit of a control group too."""

from __future__ import annotations

import contextlib
import os

from dltune.base.errors import UsageError
from dltune.system.cgroups import limits
from dltune.system.proc import process
from dltune.system.proc.tree import Tree


def used_bytes(pid: int) -> int:
    """Resident memory of a process and all that it has started."""
    with contextlib.suppress(UsageError):
        return sum(map(process.resident, Tree(pid).refresh()))
    return 0  # it has ended


def free_bytes() -> tuple[int, int]:
    """What may still be taken without swapping, and all that there is: of the machine, or of the
    control group that this process and its jobs are in."""
    import psutil  # type: ignore[import-untyped]

    machine = psutil.virtual_memory()
    limit = limits().memory
    if limit is None or limit >= machine.total:
        return machine.available, machine.total
    return min(machine.available, max(0, limit - used_bytes(os.getpid()))), limit
