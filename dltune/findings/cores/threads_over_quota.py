"""More threads than the control group's CPU time pays for, or than there are cores."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dltune.analysis.figures import Analysis
from dltune.analysis.parts import unrecorded, working
from dltune.documents.finding import Finding, Gain
from dltune.documents.observation import Observation
from dltune.documents.sections.settings import Choice
from dltune.findings.cores.allowed import as_usual
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.findings.thread_settings import intra_op, threads_of

THROTTLED = 0.05  # of the time


@rule(
    "threads-over-quota",
    "cores",
    summary="Ops use more threads than the CPU quota allows, or than there are CPUs, so the kernel "
    "stops them or they wait.",
    fix="Set the thread count to the number of CPUs in the quota (OMP_NUM_THREADS, "
    "TF_NUM_INTRAOP_THREADS), or raise the quota.",
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost, at most: the time for which the group stood still. A part of it stays, since the
    same work needs the same CPU time; what goes is waiting at ends of ops for a thread that stands
    still. Where the job was not looked at while it ran: what the ops, measured one at a time, take
    less on the right count."""
    if seen.observation:
        yield from _observed(seen.observation)
    elif seen.profile:
        yield from _profiled(seen.profile)


def _observed(observation: Observation) -> Iterator[Finding]:
    main = observation.main
    if main is None or main.intra is None:
        return
    quota, throttled = observation.host.quota, observation.host.throttled
    if quota is None or throttled is None or throttled < THROTTLED:
        return
    paid = max(1, math.ceil(quota))  # one that stands still now and then uses up what is paid for
    stood = (
        f"the kernel stopped the job's threads for {throttled:.0%} of the time, because they had "
        "used up the quota"
    )
    if quota < main.intra <= paid:
        return
    if main.intra <= quota:
        ran = sum(one.threads for one in observation.processes)
        yield Finding(
            title=f"the job uses up its quota of {_cpus(quota)}",
            evidence=f"{stood}; an op uses {main.intra} of the job's {ran} threads",
            fix="raise the container's CPU quota, or reduce the work next to the ops, for "
            "example the number of workers that prepare data",
            share=throttled,
            gain=Gain(0.0, throttled),
            confidence="modelled",
        )
        return
    yield Finding(
        title=f"ops use {main.intra} threads, but the quota allows {_cpus(quota)}",
        evidence=f"{stood}; {threads_of(main)}",
        fix=f"set {paid} intra-op thread{'s' * (paid > 1)} ({intra_op(main.framework, paid)}), or "
        "raise the container's CPU quota",
        share=throttled,
        gain=Gain(0.0, throttled),
        confidence="modelled",
        apply=(Choice("threads", as_usual(paid, main.inter)),),
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
    there, here = _serial(analysis, min(intra, cores)), _serial(analysis, right)
    share = None
    evidence = "dltune did not measure how much time this costs"
    if there and here and right < min(intra, cores):
        evidence = (
            f"one at a time, the ops take {here * 1e3:.3g} ms on {right} and {there * 1e3:.3g} ms "
            f"on {min(intra, cores)} threads"
        )
        share = max(0.0, 1 - here / there) * working(profile)
    yield Finding(
        title=f"ops use {intra} threads, more than {limit}",
        evidence=evidence,
        fix=f"set {right} thread{'s' * (right > 1)} ({intra_op(profile.framework.name, right)}), "
        "so that none waits for a CPU",
        seconds=None if share is None else share * unrecorded(profile),
        share=share,
        gain=None if share is None else Gain(0.0, share),
        confidence="modelled",
        apply=(Choice("threads", as_usual(right, profile.settings.inter)),),
        try_next=("threads",),
    )


def _cpus(quota: float) -> str:
    return f"{quota:g} CPU{'s' * (quota != 1)}"


def _serial(analysis: Analysis, count: int) -> float | None:
    """Seconds of all ops of a round on so many threads; None when some were not measured there."""
    total = 0.0
    for figures in analysis.ops:
        if figures.cases:
            seconds = figures.on(count)
            if seconds is None:
                return None
            total += seconds * figures.op.count
    return total
