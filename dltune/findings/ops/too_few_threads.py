"""Fewer threads than there are cores to spare, for ops that more would make faster."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dltune.analysis.figures import Figures
from dltune.analysis.parts import ENOUGH, measured, part
from dltune.documents.finding import Finding, Gain
from dltune.documents.observation import Observation
from dltune.documents.profile import Profile
from dltune.documents.sections.settings import Choice
from dltune.findings.cores.allowed import allowed, allowed_together
from dltune.findings.ops.in_the_job import in_the_job
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.findings.thread_settings import one_op_at_a_time
from dltune.frameworks.capabilities import framework

# of the step: ops were measured one after the other, and the job may run some side by side
SHARE = 0.1


@rule(
    "too-few-threads",
    "ops",
    summary="Ops use fewer threads than there are free CPUs, although more threads would make them "
    "faster.",
    fix="Set the thread count to the number of free CPUs (OMP_NUM_THREADS, "
    "TF_NUM_INTRAOP_THREADS).",
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: what the ops took in the job, less what they take one after the other on as many
    threads each as is best for all together, of those that cores are left for. Where the job runs
    them so as well, what was measured one after the other is compared with its like, on the job's
    own threads: the job's own time is without page faults, say."""
    if seen.profile is None or measured(seen.profile.profile) < ENOUGH:
        return
    profile, ops = seen.profile.profile, seen.profile.ops
    own = profile.settings.intra
    more = range(own + 1, _room(profile, seen.observation) + 1)
    tried = [(sum(_seconds(one, threads) for one in ops), threads) for threads in more]
    alone, threads = min(tried, default=(math.inf, own))
    step, took, _ = in_the_job(seen, profile)
    alike = sum(_seconds(one, own) for one in ops)
    before = min(took, alike)
    in_turn = profile.settings.inter == 1 and 0 < alone < alike < math.inf
    less = before * (1 - alone / alike) if in_turn else before - alone
    share = less / step if step > 0 else 0.0
    if share < SHARE:
        return
    main = seen.observation.main if seen.observation else None
    launcher = framework(main.framework).launcher if main and (main.ranks or 1) > 1 else ""
    yield Finding(
        title=f"ops use {own} thread{'s' * (own > 1)}, but there are cores for {threads}",
        evidence=f"one after the other on {threads} threads, the ops take {alone * 1e3:.3g} ms per "
        "step; "
        + (
            f"on {own} thread{'s' * (own > 1)} they take {alike * 1e3:.3g} ms"
            if in_turn
            else f"in the job they take {took * 1e3:.3g} ms"
        ),
        fix=f"set {threads} threads: {one_op_at_a_time(seen.framework, threads)}"
        + (
            f"; {launcher} sets one thread for each rank if OMP_NUM_THREADS is not set"
            if launcher
            else ""
        ),
        seconds=less,
        share=share,
        gain=Gain(0.0, share),
        confidence="modelled",
        apply=(Choice("threads", f"{threads}x1"),),
        try_next=("threads",),
    )


def _seconds(figures: Figures, threads: int) -> float:
    """Of a round of the steps; infinite on a number of threads that was not measured. What dltune
    does not control takes what it took."""
    if not figures.cases:
        return (figures.op.own or 0.0) * figures.op.count
    seconds = figures.on(threads)
    return math.inf if seconds is None else seconds * figures.op.count


def _room(profile: Profile, observation: Observation | None) -> int:
    """Threads that there are cores for, beside the job's other processes, other threads of its own
    and others on the cores; none where it has ranks, and was not looked at while it ran."""
    cores = len(profile.machine.cores)
    if profile.machine.quota is not None:
        cores = min(cores, int(profile.machine.quota))
    main = observation.main if observation else None
    if observation is None or main is None:
        return 0 if part(profile, "communication") or _sums(profile) else cores
    ranks = main.ranks or 1
    helpers = [
        one
        for one in observation.processes
        if one is not main and not (ranks > 1 and one.intra is not None)
    ]
    busy = sum(one.cpu for one in helpers) + observation.host.others
    busy += max(0.0, main.cpu - profile.settings.intra)
    left = round((allowed_together(observation) - busy) / ranks)
    return min(cores, left, allowed(observation))


def _sums(profile: Profile) -> bool:
    return any(step.collectives for step in profile.steps)
