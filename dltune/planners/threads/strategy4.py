"""Strategy 4: small ops on the second hardware threads of busy cores (section III-D).

Which op is decided while the job runs (dltune/native/corun.h); here only, whether it can be.
"""

from __future__ import annotations

from dltune.documents.machine import Machine


def applicable(machine: Machine) -> bool:
    """Some core has a second hardware thread."""
    return any(len(core.cpus) > 1 for core in machine.cores)


def why_not(machine: Machine) -> str:
    return (
        f"strategy 4 does not apply: no core of {machine.name} offers a second hardware thread "
        "to this job"
    )
