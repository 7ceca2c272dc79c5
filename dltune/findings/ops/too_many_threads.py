"""More threads than CPUs, or more than the size of the ops justifies."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.roofline import Figures
from dltune.analysis.step_parts import ENOUGH, may_be_recording, measured, wall
from dltune.findings.cores import crowded_processes, narrow_affinity, threads_over_quota
from dltune.findings.cores.thread_limits import crowding_share
from dltune.findings.evidence import Evidence
from dltune.findings.ops.job_times import job_times
from dltune.findings.rule import rule
from dltune.findings.thread_settings import sequential_setting
from dltune.schemas.diagnosis import Finding, Gain, Process
from dltune.schemas.settings import Choice

SHARE = 0.05  # of the step
DISPATCH = 2e-6  # seconds of the executor for an op on one thread
# rules that report the threads instead
ON_CORES = (crowded_processes, narrow_affinity, threads_over_quota)


@rule(
    "too-many-threads",
    "ops",
    summary="Ops use more threads than the job has CPUs, or are too small for their threads.",
    fix="Set the thread count to the number of CPUs, or to one for small ops (OMP_NUM_THREADS, "
    "TF_NUM_INTRAOP_THREADS).",
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find too many threads. With more threads than CPUs, the cost is at most the time for which
    they waited for one another. Otherwise the cost is the time of the ops in the job, without
    recording, other processes and page faults, minus their measured time one at a time on one
    thread. The lowest gain uses the fastest recorded step, because a disturbance of some seconds is
    not caused by the threads, and excludes the executor's time on one thread."""
    if evidence.profile is None or evidence.profile.profile.settings.intra < 2:
        return
    profile = evidence.profile.profile
    if any((finding.share or 0.0) >= SHARE for rule in ON_CORES for finding in rule.find(evidence)):
        return
    if any(figures.cases and figures.one is None for figures in evidence.profile.ops):
        return
    if measured(profile) < ENOUGH:
        return
    single, whole = sum(figures.serial for figures in evidence.profile.ops), wall(profile)
    threads_help = single - sum(map(_on_several, evidence.profile.ops)) > SHARE * whole
    main = evidence.main
    if main and evidence.observation and (share := crowding_share(evidence.observation)) >= SHARE:
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
    if low < SHARE:
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
