"""Findings about the number of threads for the ops of a job.

A job can use fewer threads than there are free cores, for ops that more threads make faster. A job
can also use more threads than CPUs, or more than the size of its ops justifies. Both rules compare
measured times of ops with the times of a step and its ops as the job runs them (`job_times`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from dltune.analysis.roofline import Figures
from dltune.analysis.step_parts import (
    ENOUGH,
    may_be_recording,
    measured,
    part,
    recording,
    unrecorded,
    wall,
)
from dltune.findings import cores
from dltune.findings.cores import crowding_share, job_thread_limit, sequential_setting, thread_limit
from dltune.findings.evidence import Evidence
from dltune.findings.memory_use import fault_share
from dltune.findings.rule import rule
from dltune.frameworks.capabilities import framework
from dltune.schemas.diagnosis import Finding, Gain, Observation, Process
from dltune.schemas.profile import Profile
from dltune.schemas.settings import Choice


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


# share of the step; ops were measured one at a time, but the job can run several at once
MIN_SAVED = 0.1


@rule(
    "too-few-threads",
    "ops",
    summary="Ops use fewer threads than there are free CPUs, although more threads would make them "
    "faster.",
    fix="Set the thread count to the number of free CPUs (OMP_NUM_THREADS, "
    "TF_NUM_INTRAOP_THREADS).",
)
def too_few_threads(evidence: Evidence) -> Iterator[Finding]:
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
    if share < MIN_SAVED:
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


MIN_LOST = 0.05  # of the step
DISPATCH = 2e-6  # seconds of the executor for an op on one thread
# rules that report the threads instead
ON_CORES = (cores.crowded_processes, cores.narrow_affinity, cores.threads_over_quota)


@rule(
    "too-many-threads",
    "ops",
    summary="Ops use more threads than the job has CPUs, or are too small for their threads.",
    fix="Set the thread count to the number of CPUs, or to one for small ops (OMP_NUM_THREADS, "
    "TF_NUM_INTRAOP_THREADS).",
)
def too_many_threads(evidence: Evidence) -> Iterator[Finding]:
    """Find too many threads. With more threads than CPUs, the cost is at most the time for which
    they waited for one another. Otherwise the cost is the time of the ops in the job, without
    recording, other processes and page faults, minus their measured time one at a time on one
    thread. The lowest gain uses the fastest recorded step, because a disturbance of some seconds is
    not caused by the threads, and excludes the executor's time on one thread."""
    if evidence.profile is None or evidence.profile.profile.settings.intra < 2:
        return
    profile = evidence.profile.profile
    if any((finding.share or 0.0) >= MIN_LOST for rule in ON_CORES for finding in rule(evidence)):
        return
    if any(figures.cases and figures.one is None for figures in evidence.profile.ops):
        return
    if measured(profile) < ENOUGH:
        return
    single, whole = sum(figures.serial for figures in evidence.profile.ops), wall(profile)
    threads_help = single - sum(map(_on_several, evidence.profile.ops)) > MIN_LOST * whole
    main = evidence.main
    if (
        main
        and evidence.observation
        and (share := crowding_share(evidence.observation)) >= MIN_LOST
    ):
        yield _over_cpus(main, share, several=threads_help)
        return
    if threads_help:
        return
    whole, in_job, executor = job_times(evidence, profile)
    if whole <= 0 or single <= 0:
        return
    share = (in_job - single) / whole
    runs = sum(figures.op.count for figures in evidence.profile.ops)
    walls = [step.wall for step in profile.steps]
    fastest = sum(step.min for step in walls) / sum(step.median for step in walls)
    # recording can have taken more than the known difference
    at_least = in_job - max(0.0, may_be_recording(profile) - (wall(profile) - whole))
    low = (fastest * at_least - single - min(executor, runs * DISPATCH)) / whole
    if low < MIN_LOST:
        return
    intra = profile.settings.intra
    yield Finding(
        title=f"the ops are too small for {intra} threads",
        evidence=f"one after the other on one thread, the ops take {single * 1e3:.3g} ms per step; "
        f"in the job they take {in_job * 1e3:.3g} ms",
        fix=f"set one thread: {sequential_setting(evidence.framework, 1)}; larger batches can use "
        "more threads",
        seconds=in_job - single,
        share=share,
        gain=Gain(low, share),
        confidence="modelled",
        apply=(Choice("threads", "1x1"),),
        try_next=("threads",),
    )


def _over_cpus(main: Process, share: float, *, several: bool) -> Finding:
    right = len(main.cpus) if several else 1
    reason = "" if several else ", and the ops are too small for more than one"
    return Finding(
        title=f"ops use {main.intra} threads on {len(main.cpus)} "
        f"CPU{'s' * (len(main.cpus) > 1)}{reason}",
        evidence=f"the threads were ready but had no CPU for {share:.0%} of the CPU time they "
        "needed, because they wait for one another (waits for other processes are not counted)",
        fix=f"set {right} thread{'s' * (right > 1)}: {sequential_setting(main.framework, right)}",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
        apply=(Choice("threads", f"{right}x1"),),
        try_next=("threads",),
    )


def _on_several(figures: Figures) -> float:
    """Return the seconds of an op per step on several threads, or on one thread if no other count
    was measured."""
    times = (case.time.median for case in figures.cases if case.time.threads > 1)
    return min(times, default=figures.one or 0.0) * figures.op.count
