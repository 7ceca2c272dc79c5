"""Times of a step and its ops as the job runs them."""

from __future__ import annotations

import math
from typing import NamedTuple

from dltune.analysis.step_parts import part, recording, unrecorded, wall
from dltune.findings.evidence import Evidence
from dltune.findings.memory.allocator_trim import fault_share
from dltune.schemas.profile import Profile


class JobTimes(NamedTuple):
    """Seconds of a `step` without recording, of its `ops` without the time that other processes and
    page faults took, and of the `executor` between ops, which are part of `ops`."""

    step: float
    ops: float
    executor: float


def job_times(evidence: Evidence, profile: Profile) -> JobTimes:
    """Estimate the times of a step in the job from its profile and its observation."""
    whole = wall(profile)
    # an op waits for its thread with the most disturbed core, which has at least half of that core
    threads = min(profile.settings.intra, len(profile.machine.cores))
    disturbed = evidence.observation.disturbed if evidence.observation else 0.0
    free = max(1 - threads * disturbed, min(0.5, 1 - disturbed))
    if evidence.main:
        free = max(0.0, free - fault_share(evidence.main))
    ops, executor = part(profile, "ops") * whole, part(profile, "executor") * whole
    graphs = evidence.graphs
    step = min(unrecorded(profile), (graphs and graphs.period) or math.inf)
    within = max(0.0, ops + executor - (whole - step))
    return JobTimes(step, within * free, (executor - recording(profile)) * free)
