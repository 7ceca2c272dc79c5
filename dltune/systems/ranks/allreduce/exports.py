"""Files that launchers read: Horovod's configuration file, a rankfile, exports.

They leave out the parts that need dltune in the job (bins, sleeps, cores of single threads). Each
file says so in its first lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from dltune.base.errors import UsageError
from dltune.schemas.machine import Machine
from dltune.systems.ranks.allreduce.rank_outcome import cpus, settings
from dltune.systems.ranks.allreduce.section import AllreducePlan

MIB = 1 << 20


def export(kind: str, plan: AllreducePlan, machine: Machine, hosts: Sequence[str] = ()) -> str:
    """The plan in one of the planner's formats. `hosts`: the nodes, in the launcher's order.

    Raises UsageError when the plan has nothing for this format, KeyError for another format.
    """
    if kind == "rankfile":
        return _rankfile(plan, machine, hosts)
    return {"horovodrun-yaml": _yaml, "env": _env}[kind](plan, machine)


def _yaml(plan: AllreducePlan, machine: Machine) -> str:
    lines = [*_left_out(plan), f"controller: {plan.controller}"]
    if plan.knobs:
        lines += [
            "params:",
            f"  fusion_threshold_mb: {-(-plan.knobs.fusion_threshold // MIB)}",
            f"  cycle_time_ms: {plan.knobs.cycle_time * 1e3:g}",
            f"  cache_capacity: {plan.knobs.cache_capacity}",
        ]
    if plan.cores and plan.local == 1:  # the file takes one number, for all local ranks
        lines += ["library_options:", f"  thread_affinity: {_background(plan, machine)}"]
    return "\n".join(lines) + "\n"


def _rankfile(plan: AllreducePlan, machine: Machine, hosts: Sequence[str]) -> str:
    """For `mpirun --rankfile`: all cores of each rank. Slots are the system's CPU numbers."""
    if not plan.cores:
        raise UsageError(
            "--emit rankfile: a rankfile assigns cores to ranks, and this plan assigns none",
            remedy="add core-partition to --methods",
        )
    nodes = -(-plan.ranks // plan.local)
    if len(hosts) < nodes:
        # relative names need a hostfile or an allocation, which several nodes have anyway
        hosts = ["localhost"] if nodes == 1 else [f"+n{node}" for node in range(nodes)]
    lines = [*_left_out(plan), "# use: mpirun --rankfile FILE --mca rmaps_rank_file_physical 1 ..."]
    for rank in range(plan.ranks):
        node, local = divmod(rank, plan.local)
        mine = plan.cores[local]
        cores = {*mine.background, *mine.helpers, *mine.compute, *mine.input}
        lines.append(f"rank {rank}={hosts[node]} slot={cpus(machine, cores)}")
    return "\n".join(lines) + "\n"


def _env(plan: AllreducePlan, machine: Machine) -> str:
    exports = settings(plan)
    if plan.cores:
        exports["HOROVOD_THREAD_AFFINITY"] = _background(plan, machine)
        if plan.controller == "mpi":
            exports["OMPI_MCA_hwloc_base_binding_policy"] = "none"
    if plan.threads:
        exports["TF_NUM_INTRAOP_THREADS"] = str(plan.threads.intra)
        exports["TF_NUM_INTEROP_THREADS"] = str(plan.threads.inter)
        exports["OMP_NUM_THREADS"] = str(plan.threads.intra)
    lines = [*_left_out(plan), *(f"export {name}={value}" for name, value in exports.items())]
    return "\n".join(lines) + "\n"


def _background(plan: AllreducePlan, machine: Machine) -> str:
    """HOROVOD_THREAD_AFFINITY: one CPU for each local rank's background thread."""
    assert plan.cores is not None
    return ",".join(str(machine.cores[rank.background[0]].cpus[0]) for rank in plan.cores)


def _left_out(plan: AllreducePlan) -> list[str]:
    missing = {
        "bins": plan.orders,
        "sleeps": plan.sleeps,
        "cores of single threads": plan.cores,
    }
    names = ", ".join(name for name, there in missing.items() if there)
    return [f"# not included: {names}; dltune run --plan applies them"] if names else []
