"""How many threads a job's cores and its control group have room for."""

from __future__ import annotations

import math

from dltune.documents.observation import Observation


def allowed(observation: Observation) -> int:
    """The CPUs that the process that trains may run on, or those that its quota pays for."""
    main = observation.main
    return _room(observation, len(main.cpus) if main and main.cpus else observation.cores)


def allowed_together(observation: Observation) -> int:
    """The same of all processes of the job."""
    return _room(observation, observation.cores)


def _room(observation: Observation, cpus: int) -> int:
    quota = observation.host.quota
    return max(1, min(cpus, math.floor(quota if quota is not None else cpus)))


def as_usual(threads: int, inter: int | None) -> str:
    """A choice of threads, by which TensorFlow has what it has of itself on so many CPUs; no more
    inter-op threads than the job's."""
    return f"{threads}x{min(threads, inter or threads)}"


def crowd(observation: Observation) -> float:
    """Of what the threads of the process that trains wanted of its CPUs, the share that they had
    not because they are more than these, and not because others had them; 0 where there are no more
    of them."""
    main = observation.main
    if main is None or (main.intra or 0) <= len(main.cpus):
        return 0.0
    return main.waited * (1 - observation.disturbed)
