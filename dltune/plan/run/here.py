"""`dltune.apply`: a plan enforced from inside a script, without `dltune run` around it."""

from __future__ import annotations

import os
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.job.rank_layout import local_rank, rank_cores
from dltune.plan.plan import (
    in_order,
    load,
    require_machine,
    require_sections,
)
from dltune.plan.registry import planner
from dltune.system import topology

_applied = False


def apply(path: Path) -> None:
    """Enforce the plan at `path` in this process.

    A rank of a launcher gets its part of the node's cores. Raises UsageError, before anything is
    changed, when the plan does not fit this machine, when one of its sections cannot be enforced
    from inside, or when another plan is enforced in this process.
    """
    global _applied
    plan = load(path)
    require_sections(plan)
    machine = topology.local()
    require_machine(plan, machine)
    if _applied or os.environ.get("DLTUNE_SOCKET"):
        raise UsageError(
            "this process already runs under a plan",
            remedy="call dltune.apply only once, and not under dltune run",
        )
    rank = local_rank(os.environ)
    part = rank_cores(machine, rank) if rank is not None and rank.size > 1 else machine
    actions = [planner(name).apply(section, plan, part) for name, section in in_order(plan)]
    if part is not machine:
        os.sched_setaffinity(0, [cpu for core in part.cores for cpu in core.cpus])
    for action in reversed(actions):  # first what can still fail: the framework's
        action()
    _applied = True
