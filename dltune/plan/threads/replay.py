"""Simulation of a workload under a plan as `run` would enforce it, including manual edits."""

from __future__ import annotations

from dltune.plan.threads.fitted import Handling, fit
from dltune.schemas import graph
from dltune.schemas.plan import Candidate, Threads
from dltune.simulate.workload import Outcome, Workload
from dltune.system.topology import cores_for


def replayed(made: Workload, section: Threads) -> Outcome:
    """Simulate a round of the steps on the workload's machine, with cores if strategy 3 chooses
    them."""
    fitted = fit(section, made.machine)
    uniform = fitted.uniform
    if not section.ops:
        return made.uniform(uniform.intra, uniform.inter)
    entries = {entry.key: entry for entry in section.ops}
    made = made.apart([key for key in entries if graph.named_node(key)])
    choices = made.alike(uniform.intra)
    candidates: dict[int, tuple[Candidate, ...]] = {}
    placed: dict[int, tuple[int, ...]] = {}
    for index, (op, pool) in enumerate(zip(made.ops, choices, strict=True)):
        if pool is None:
            continue
        entry = entries.get(op.key)
        handling = fitted.handling(entry) if entry else None
        if entry and handling is Handling.PLACED:
            cores = placed[index] = fitted.cores(entry)
            curve = made.curves[index]
            if curve and len(cores) < entry.threads:  # the plan's seconds are for more cores
                choices[index] = made.placed(curve, len(cores))
            else:
                choices[index] = entry.choice
        elif entry and handling is Handling.ADMITTED:
            choices[index] = entry.choice
            candidates[index] = entry.candidates
        elif not made.small(index):  # the framework's own pool runs it
            placed[index] = cores_for(made.machine, min(pool.threads, made.cores), pool.placement)
    if not section.corun:
        return made.fifo(choices, uniform.inter)
    return made.corun(
        choices,
        candidates,
        uniform.inter,
        hyperthreads=section.hyperthreads,
        placed=placed,
        with_cores=True,
    )
