"""How many threads a job's cores and its control group have room for."""

from __future__ import annotations

import math

from dltune.documents.observation import Observation


def allowed(observation: Observation) -> int:
    """The CPUs that the process that trains may run on, or those that its quota pays for."""
    main, quota = observation.main, observation.host.quota
    cpus = len(main.cpus) if main and main.cpus else len(observation.host.cpus)
    return max(1, min(cpus, math.floor(quota if quota is not None else cpus)))


def confined(observation: Observation) -> bool:
    """Whether that is less than the machine has."""
    return allowed(observation) < observation.host.online
