"""Thread counts that the CPUs and the control group of a job allow."""

from __future__ import annotations

import math

from dltune.schemas.diagnosis import Observation


def thread_limit(observation: Observation) -> int:
    """Return the number of CPUs on which the training process can run, at most its quota."""
    main = observation.main
    return _within_quota(observation, len(main.cpus) if main and main.cpus else observation.cores)


def job_thread_limit(observation: Observation) -> int:
    """Return the number of CPUs on which any process of the job can run, at most the quota."""
    return _within_quota(observation, observation.cores)


def _within_quota(observation: Observation, cpus: int) -> int:
    quota = observation.host.quota
    return max(1, min(cpus, math.floor(quota if quota is not None else cpus)))


def default_threads(threads: int, inter: int | None) -> str:
    """Return the value of the setting `threads` that equals TensorFlow's default on so many CPUs,
    with at most the job's inter-op threads."""
    return f"{threads}x{min(threads, inter or threads)}"


def crowding_share(observation: Observation) -> float:
    """Return the share of the CPU time needed by the training process for which its threads waited
    for one another; 0 if it has at most one thread per CPU."""
    main = observation.main
    if main is None or (main.intra or 0) <= len(main.cpus):
        return 0.0
    return main.waited * (1 - observation.disturbed)
