"""More threads than the quota of the control group allows, or than there are cores."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dltune.analysis.roofline import Analysis
from dltune.analysis.step_parts import unrecorded, working
from dltune.findings.cores.thread_limits import default_threads
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.findings.thread_settings import advise_intra_op, describe_threads, intra_op_setting
from dltune.schemas.diagnosis import Finding, Gain, Observation
from dltune.schemas.settings import Choice

THROTTLED = 0.05  # share of the time


@rule(
    "threads-over-quota",
    "cores",
    summary="Ops use more threads than the CPU quota allows, or than there are CPUs, so the kernel "
    "stops them or they wait.",
    fix="Set the thread count to the number of CPUs in the quota (OMP_NUM_THREADS, "
    "TF_NUM_INTRAOP_THREADS), or raise the quota.",
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find more threads than the quota or the cores. The cost is at most the time for which the
    kernel stopped the group. Part of it remains, because the same work needs the same CPU time; the
    fix removes waits at the end of ops for a stopped thread. Without an observation of the job, the
    cost is the difference of the measured op times on both thread counts."""
    if evidence.observation:
        yield from _observed(evidence.observation)
    elif evidence.profile:
        yield from _profiled(evidence.profile)


def _observed(observation: Observation) -> Iterator[Finding]:
    main = observation.main
    if main is None or main.intra is None:
        return
    quota, throttled = observation.host.quota, observation.host.throttled
    if quota is None or throttled is None or throttled < THROTTLED:
        return
    # a thread that is stopped from time to time uses up the rest of the quota
    allowed = max(1, math.ceil(quota))
    stopped = (
        f"the kernel stopped the job's threads for {throttled:.0%} of the time, because they had "
        "used up the quota"
    )
    if quota < main.intra <= allowed:
        return
    if main.intra <= quota:
        total = sum(process.threads for process in observation.processes)
        yield Finding(
            title=f"the job uses up its quota of {_cpus(quota)}",
            evidence=f"{stopped}; an op uses {main.intra} of the job's {total} threads",
            fix="raise the container's CPU quota, or reduce the work next to the ops, for "
            "example the number of workers that prepare data",
            share=throttled,
            gain=Gain(0.0, throttled),
            confidence="modelled",
        )
        return
    yield Finding(
        title=f"ops use {main.intra} threads, but the quota allows {_cpus(quota)}",
        evidence=f"{stopped}; {describe_threads(main)}",
        fix=f"{advise_intra_op(main.framework, allowed)}, or raise the container's CPU quota",
        share=throttled,
        gain=Gain(0.0, throttled),
        confidence="modelled",
        apply=(Choice("threads", default_threads(allowed, main.inter)),),
        try_next=("threads",),
    )


def _profiled(analysis: Analysis) -> Iterator[Finding]:
    profile = analysis.profile
    machine, intra = profile.machine, profile.settings.intra
    cores = len(machine.cores)
    right = max(1, min(cores, math.floor(machine.quota or cores)))
    if intra <= right:
        return
    limit = (
        f"the {cores} cores"
        if machine.quota is None or right == cores
        else f"the quota of {_cpus(machine.quota)}"
    )
    before, after = _serial(analysis, min(intra, cores)), _serial(analysis, right)
    share = None
    details = "dltune did not measure how much time this costs"
    if before and after and right < min(intra, cores):
        details = (
            f"one at a time, the ops take {after * 1e3:.3g} ms on {right} and {before * 1e3:.3g} "
            f"ms on {min(intra, cores)} threads"
        )
        share = max(0.0, 1 - after / before) * working(profile)
    yield Finding(
        title=f"ops use {intra} threads, more than {limit}",
        evidence=details,
        fix=f"set {right} thread{'s' * (right > 1)} "
        f"({intra_op_setting(profile.framework.name, right)}), so that none waits for a CPU",
        seconds=None if share is None else share * unrecorded(profile),
        share=share,
        gain=None if share is None else Gain(0.0, share),
        confidence="modelled",
        apply=(Choice("threads", default_threads(right, profile.settings.inter)),),
        try_next=("threads",),
    )


def _cpus(quota: float) -> str:
    return f"{quota:g} CPU{'s' * (quota != 1)}"


def _serial(analysis: Analysis, count: int) -> float | None:
    """Return the seconds of all ops of a step on `count` threads; None if an op was not measured
    with this count."""
    total = 0.0
    for figures in analysis.ops:
        if figures.cases:
            seconds = figures.on(count)
            if seconds is None:
                return None
            total += seconds * figures.op.count
    return total
