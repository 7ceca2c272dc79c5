"""What a step's ops take as the job runs them."""

from __future__ import annotations

import math
from typing import NamedTuple

from dltune.analysis.parts import part, recording, unrecorded, wall
from dltune.documents.profile import Profile
from dltune.findings.memory.allocator_trim import fault_share
from dltune.findings.seen import Seen


class InTheJob(NamedTuple):
    """Seconds: of a `step` while its ops are not recorded; of its `ops` then, without what others
    on the cores and the kernel for page faults took from it; of these those of the `executor`,
    between ops."""

    step: float
    ops: float
    executor: float


def in_the_job(seen: Seen, profile: Profile) -> InTheJob:
    whole = wall(profile)
    # an op on several threads waits for the one whose core others want most; it has half of that
    threads = min(profile.settings.intra, len(profile.machine.cores))
    disturbed = seen.observation.disturbed if seen.observation else 0.0
    free = max(1 - threads * disturbed, min(0.5, 1 - disturbed))
    if seen.observation and seen.observation.main:
        free = max(0.0, free - fault_share(seen.observation.main))
    ops, executor = part(profile, "ops") * whole, part(profile, "executor") * whole
    graphs = seen.observation.graphs if seen.observation else None
    step = min(unrecorded(profile), (graphs and graphs.period) or math.inf)
    within = max(0.0, ops + executor - (whole - step))
    return InTheJob(step, within * free, (executor - recording(profile)) * free)
