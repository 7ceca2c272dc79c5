"""Plans for two Horovod ranks, of the parts that a test asks for alone."""

from __future__ import annotations

from pathlib import Path

import msgspec
from two_ranks import Controller

from dltune.plan.plan import new_plan, plan_faults
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Threads
from dltune.systems.ranks.allreduce.section import AllreducePlan


def written(
    path: Path,
    machine: Machine,
    controller: Controller,
    ops: Threads | None = None,
    **parts: object,
) -> Path:
    """A plan for two ranks with these parts alone, and this section on threads."""
    section = AllreducePlan(
        report="",
        controller=controller,
        ranks=2,
        local=2,
        cores=None,
        threads=None,
        orders=None,
        sleeps=None,
        knobs=None,
        yield_when_idle=False,
        predictions=(),
        reasons=(),
    )
    section = msgspec.structs.replace(section, **parts)
    plan = new_plan(machine, sections={"allreduce": section, "threads": ops})
    assert plan_faults(plan) == []
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(plan))
    return path
