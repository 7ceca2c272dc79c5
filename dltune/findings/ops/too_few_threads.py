"""Fewer threads than free cores, for ops that more threads make faster."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dltune.analysis.roofline import Figures
from dltune.analysis.step_parts import ENOUGH, measured, part
from dltune.findings.cores.thread_limits import job_thread_limit, thread_limit
from dltune.findings.evidence import Evidence
from dltune.findings.ops.job_times import job_times
from dltune.findings.rule import rule
from dltune.findings.thread_settings import sequential_setting
from dltune.frameworks.capabilities import framework
from dltune.schemas.diagnosis import Finding, Gain, Observation
from dltune.schemas.profile import Profile
from dltune.schemas.settings import Choice

# share of the step; ops were measured one at a time, but the job can run several at once
SHARE = 0.1


@rule(
    "too-few-threads",
    "ops",
    summary="Ops use fewer threads than there are free CPUs, although more threads would make them "
    "faster.",
    fix="Set the thread count to the number of free CPUs (OMP_NUM_THREADS, "
    "TF_NUM_INTRAOP_THREADS).",
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find missing threads. The cost is the time of the ops in the job without their measured time
    on the best thread count that fits on the free cores, one op at a time. If the job also runs one
    op at a time, both times are measured ones, because the time in the job excludes page faults."""
    if evidence.profile is None or measured(evidence.profile.profile) < ENOUGH:
        return
    profile, ops = evidence.profile.profile, evidence.profile.ops
    intra = profile.settings.intra
    counts = range(intra + 1, _free_cores(profile, evidence.observation) + 1)
    candidates = [(sum(_seconds(op, threads) for op in ops), threads) for threads in counts]
    best, threads = min(candidates, default=(math.inf, intra))
    step, in_job, _ = job_times(evidence, profile)
    present = sum(_seconds(op, intra) for op in ops)
    before = min(in_job, present)
    in_turn = profile.settings.inter == 1 and 0 < best < present < math.inf
    saved = before * (1 - best / present) if in_turn else before - best
    share = saved / step if step > 0 else 0.0
    if share < SHARE:
        return
    main = evidence.main
    launcher = framework(main.framework).launcher if main and (main.ranks or 1) > 1 else ""
    yield Finding(
        title=f"ops use {intra} thread{'s' * (intra > 1)}, but there are cores for {threads}",
        evidence=f"one after the other on {threads} threads, the ops take {best * 1e3:.3g} ms per "
        "step; "
        + (
            f"on {intra} thread{'s' * (intra > 1)} they take {present * 1e3:.3g} ms"
            if in_turn
            else f"in the job they take {in_job * 1e3:.3g} ms"
        ),
        fix=f"set {threads} threads: {sequential_setting(evidence.framework, threads)}"
        + (
            f"; {launcher} sets one thread for each rank if OMP_NUM_THREADS is not set"
            if launcher
            else ""
        ),
        seconds=saved,
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
        apply=(Choice("threads", f"{threads}x1"),),
        try_next=("threads",),
    )


def _seconds(figures: Figures, threads: int) -> float:
    """Return the seconds of an op per step; infinite for a thread count that was not measured. Ops
    that dltune does not control take their time in the job."""
    if not figures.cases:
        return (figures.op.own or 0.0) * figures.op.count
    seconds = figures.on(threads)
    return math.inf if seconds is None else seconds * figures.op.count


def _free_cores(profile: Profile, observation: Observation | None) -> int:
    """Return the number of cores that other processes and other threads of the job leave free; 0
    for ranks of a job that was not observed."""
    cores = len(profile.machine.cores)
    if profile.machine.quota is not None:
        cores = min(cores, int(profile.machine.quota))
    main = observation.main if observation else None
    if observation is None or main is None:
        return 0 if part(profile, "communication") or _has_collectives(profile) else cores
    ranks = main.ranks or 1
    helpers = [
        process
        for process in observation.processes
        if process is not main and not (ranks > 1 and process.intra is not None)
    ]
    busy = sum(process.cpu for process in helpers) + observation.host.others
    busy += max(0.0, main.cpu - profile.settings.intra)
    free = round((job_thread_limit(observation) - busy) / ranks)
    return min(cores, free, thread_limit(observation))


def _has_collectives(profile: Profile) -> bool:
    return any(step.collectives for step in profile.steps)
