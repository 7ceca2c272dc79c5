"""More threads than the CPUs have room for, or than ops are large enough for."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.figures import Figures
from dltune.analysis.parts import ENOUGH, may_be_recording, measured, wall
from dltune.documents.finding import Finding, Gain
from dltune.documents.observation import Process
from dltune.documents.sections.settings import Choice
from dltune.findings.cores import crowded_processes, narrow_affinity, threads_over_quota
from dltune.findings.cores.allowed import crowd
from dltune.findings.ops.in_the_job import in_the_job
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.findings.thread_settings import one_op_at_a_time

SHARE = 0.05  # of the step
DISPATCH = 2e-6  # seconds that the executor needs for an op on one thread
# where one of these tells, the threads are its own
ON_CORES = (crowded_processes, narrow_affinity, threads_over_quota)


@rule(
    "too-many-threads",
    "ops",
    summary="Ops use more threads than the job has CPUs, or are too small for their threads.",
    fix="Set the thread count to the number of CPUs, or to one for small ops (OMP_NUM_THREADS, "
    "TF_NUM_INTRAOP_THREADS).",
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: where there are more threads than CPUs, at most the time that they were ready and
    waited for one another; else what the ops took in the job, without what recording them, others
    on the cores and the kernel for page faults took from it, less what they take one after the
    other on one thread each. The least of it is that of the fastest step that was recorded, without
    what the executor needs on one thread, too: what disturbs a job for seconds is no fault of its
    threads."""
    if seen.profile is None or seen.profile.profile.settings.intra < 2:
        return
    profile = seen.profile.profile
    if any((one.share or 0.0) >= SHARE for rule in ON_CORES for one in rule.find(seen)):
        return
    if any(figures.cases and figures.one is None for figures in seen.profile.ops):
        return
    if measured(profile) < ENOUGH:
        return
    alone, whole = sum(figures.serial for figures in seen.profile.ops), wall(profile)
    # whether several threads bring a step something
    brings = alone - sum(map(_on_several, seen.profile.ops)) > SHARE * whole
    main = seen.observation.main if seen.observation else None
    if main and seen.observation and (share := crowd(seen.observation)) >= SHARE:
        yield _over_cpus(main, share, several=brings)
        return
    if brings:
        return
    whole, took, executor = in_the_job(seen, profile)
    if whole <= 0 or alone <= 0:
        return
    share = (took - alone) / whole
    runs = sum(figures.op.count for figures in seen.profile.ops)
    walls = [step.wall for step in profile.steps]
    fastest = sum(one.min for one in walls) / sum(one.median for one in walls)
    # of what recording may have taken, what is not known to have been
    took_at_least = took - max(0.0, may_be_recording(profile) - (wall(profile) - whole))
    least = (fastest * took_at_least - alone - min(executor, runs * DISPATCH)) / whole
    if least < SHARE:
        return
    intra = profile.settings.intra
    yield Finding(
        title=f"the ops are too small for {intra} threads",
        evidence=f"one after the other on one thread, the ops take {alone * 1e3:.3g} ms per step; "
        f"in the job they take {took * 1e3:.3g} ms",
        fix=f"set one thread: {one_op_at_a_time(seen.framework, 1)}; larger batches can use more "
        "threads",
        seconds=took - alone,
        share=share,
        gain=Gain(least, share),
        confidence="modelled",
        apply=(Choice("threads", "1x1"),),
        try_next=("threads",),
    )


def _over_cpus(main: Process, share: float, *, several: bool) -> Finding:
    right = len(main.cpus) if several else 1
    small = "" if several else ", and the ops are too small for more than one"
    return Finding(
        title=f"ops use {main.intra} threads on {len(main.cpus)} "
        f"CPU{'s' * (len(main.cpus) > 1)}{small}",
        evidence=f"the threads were ready but had no CPU for {share:.0%} of the CPU time they "
        "needed, because they wait for one another (waits for other processes are not counted)",
        fix=f"set {right} thread{'s' * (right > 1)}: {one_op_at_a_time(main.framework, right)}",
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
        apply=(Choice("threads", f"{right}x1"),),
        try_next=("threads",),
    )


def _on_several(figures: Figures) -> float:
    """Seconds of a round of the steps on more than one thread, or on one where no other number was
    measured."""
    several = (case.time.median for case in figures.cases if case.time.threads > 1)
    return min(several, default=figures.one or 0.0) * figures.op.count
