"""The machine that is planned for: all its cores, some of them, or what its quota leaves."""

from __future__ import annotations

import math

from dltune.base.errors import UsageError
from dltune.schemas.machine import Machine
from dltune.system.kernel_files import format_cpulist, parse_cpulist
from dltune.system.topology import cores_for


def restricted(machine: Machine, cores: str | None) -> Machine:
    """The part of the machine named by `cores`: a count ("4"), or core indices ("0-3,8").

    A count takes whole tiles first. None takes all, or, under a cgroup quota of less, as many as
    the quota can keep busy. Raises UsageError when `cores` names none, or cores that are not there.
    """
    everything = len(machine.cores)
    if cores is None:
        if machine.quota is None or machine.quota >= everything:
            return machine
        return machine.of_cores(cores_for(machine, math.ceil(machine.quota), "shared"))
    if cores.isdecimal():
        count = int(cores)
        if not 1 <= count <= everything:
            raise UsageError(
                f"--cores {cores}: {machine.name} offers {everything} cores",
                remedy=f"use a count from 1 to {everything}, or core indices such as 0-1,4",
            )
        return machine.of_cores(cores_for(machine, count, "shared"))
    try:
        chosen = sorted(parse_cpulist(cores))
    except ValueError:
        chosen = []
    if not chosen:
        raise UsageError(
            f"--cores {cores!r} is neither a count nor a list of core indices",
            remedy="use a count such as 4, or core indices such as 0-3,8",
        )
    if missing := [core for core in chosen if not 0 <= core < everything]:
        raise UsageError(
            f"--cores {cores}: core {format_cpulist(missing)} does not exist or is not allowed",
            remedy=f"use cores from 0 to {everything - 1} of {machine.name}",
        )
    return machine.of_cores(chosen)
