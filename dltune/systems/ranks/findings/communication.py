"""Findings about the communication of ranks: late ranks, Horovod's cycles, and its timeline."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from dltune.analysis.step_parts import part, unrecorded
from dltune.base.formatting import milliseconds, size
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.frameworks.capabilities import framework
from dltune.schemas.diagnosis import Finding, Gain
from dltune.schemas.profile import Profile
from dltune.systems.ranks.findings import failures
from dltune.systems.ranks.findings.cores import denied_cores
from dltune.systems.ranks.horovod.schema import WRITER, Horovod

# share of the wall time; its removal gains 1.11x, about the spread of step times
SHARE = 0.1


@rule(
    "communication-wait",
    "ranks",
    summary="Ops wait for other processes of the job.",
    fix="Send fewer and larger messages, as `dltune plan buckets`, `dltune plan allreduce` or "
    "`dltune plan transfers` propose, or use larger batches.",
)
def communication_wait(evidence: Evidence) -> Iterator[Finding]:
    """Find steps that wait for other processes of the job. If ranks are late because their
    background threads use the cores of their ops, the rule `spinning-thread` reports that
    instead."""
    share = part(evidence.profile.profile, "communication") if evidence.profile else 0.0
    if evidence.profile is None or share < SHARE:
        return
    if any(denied_cores(rank) > SHARE * rank.wanting for rank in failures.reported_ranks(evidence)):
        return
    yield Finding(
        title=f"ops wait for other processes for {share:.0%} of the wall time",
        evidence=_describe(evidence.profile.profile),
        fix="send gradients in fewer messages (`dltune plan buckets` chooses which gradients "
        "travel together), or use larger batches"
        if framework(evidence.framework).exchanges_buckets
        else "send fewer and larger messages: use `dltune plan transfers` for parameter servers, "
        "or `dltune plan allreduce` for Horovod",
        seconds=share * unrecorded(evidence.profile.profile),
        share=share,
        gain=Gain(0.0, share),
        confidence="measured",
    )


def _describe(profile: Profile) -> str:
    collectives = [each for step in profile.steps for each in step.collectives]
    if not collectives:
        return "no other op ran during that time"
    largest = max(collectives, key=lambda each: each.bytes)
    return (
        f"the largest allreduce, {size(largest.bytes)}, takes {largest.took.median * 1e3:.3g} ms; "
        f"it takes {largest.took.min * 1e3:.3g} ms if no rank is late"
    )


# share of negotiations in which a rank is the last, relative to an even share
OFTEN_LATE = 1.5


@rule(
    "late-rank",
    "ranks",
    summary="One rank is the last to have its gradients in most steps.",
    fix="Balance the rank's input, batch and cores.",
    order=2,
)
def late_rank(evidence: Evidence) -> Iterator[Finding]:
    """Find a rank that is the last to have its gradients, so that the others wait for it."""
    timeline = failures.reported_timeline(evidence)
    if timeline is None or not timeline.late:
        return
    latest, share = max(timeline.late.items(), key=lambda item: item[1])
    sizes = [rank.size for rank in failures.reported_ranks(evidence)]
    # the timeline names only ranks that were the last at least once
    even = 1.0 / max(sizes or [2, *(int(number) + 1 for number in timeline.late)])
    if share > min(OFTEN_LATE * even, 0.9) and timeline.negotiation.samples >= 20:
        yield Finding(
            title=f"rank {latest} is the last to have its gradients {share:.0%} of the time",
            evidence=f"of {timeline.negotiation.samples} negotiations (an even share is "
            f"{even:.0%}); they take {milliseconds(timeline.negotiation.median)} at the median, "
            f"{milliseconds(timeline.negotiation.p95)} at the 95th percentile",
            fix="check its extra work: its input, other users of its cores, the size of its batch",
        )


# CPU time of a rank relative to the median; share of a core below which ranks cannot be compared
UNEVEN, IDLE = 1.3, 0.05


@rule(
    "uneven-ranks",
    "ranks",
    summary="One rank has more work than the others, which wait for it in each step.",
    fix="Give ranks equal batches and cores, and keep extra work of rank 0 short.",
    order=2,
)
def uneven_ranks(evidence: Evidence) -> Iterator[Finding]:
    """Find a rank with more work than the others, which wait for it in every step. The cost is the
    time that even work would save, if a step takes as long as the work of this rank."""
    report = evidence.report(Horovod)
    if report is None or report.partial:
        return
    compute = {
        rank.rank: sum(t.cpu for t in rank.threads if t.role in ("compute", "input", "python"))
        for rank in report.ranks
    }
    if len(compute) < 2:
        return
    median = statistics.median_low(compute.values())
    busiest = max(compute, key=lambda rank: compute[rank])
    if median > IDLE and compute[busiest] > UNEVEN * median:
        share = 1 - statistics.fmean(compute.values()) / compute[busiest]
        yield Finding(
            title=f"rank {busiest} has more work than the others",
            evidence=f"its threads for computation, input and Python use {compute[busiest]:.2f} "
            f"cores, the median of all ranks is {median:.2f}; the others wait for it in each step",
            fix="give ranks equal batches and equal cores, and keep extra work of rank 0 "
            "(logging, checkpoints) short",
            share=share,
            gain=Gain(0.0, share),
            confidence="modelled",
        )


# share of cycles that transfer nothing, and cycles per second
EMPTY, MANY = 0.95, 200


@rule(
    "empty-cycles",
    "ranks",
    summary="Horovod's cycles are so short that nearly all transfer nothing.",
    fix="Make cycles longer (HOROVOD_CYCLE_TIME, dltune plan allreduce).",
    order=3,
)
def empty_cycles(evidence: Evidence) -> Iterator[Finding]:
    """Find Horovod's cycles that are so short that nearly all transfer nothing."""
    timeline = failures.reported_timeline(evidence)
    cycles = timeline.cycles if timeline else None
    if cycles and cycles.empty is not None and cycles.empty > EMPTY and cycles.rate > MANY:
        yield Finding(
            title=f"{cycles.empty:.0%} of cycles transfer nothing",
            evidence=f"{cycles.rate:.0f} cycles/s at HOROVOD_CYCLE_TIME {cycles.setting * 1e3:g} "
            "ms, and each asks every rank for its ready gradients",
            fix="make cycles longer: dltune plan allreduce chooses HOROVOD_CYCLE_TIME, and over "
            "MPI lets the thread rest until there is something to send",
        )


# length of a cycle relative to the transfer of a batch, and the share of a cycle that a batch waits
LONG_CYCLE, WAITS = 2.0, 0.5


@rule(
    "long-cycles",
    "ranks",
    summary="Gradients wait for Horovod's next cycle.",
    fix="Make cycles shorter (HOROVOD_CYCLE_TIME).",
    order=3,
)
def long_cycles(evidence: Evidence) -> Iterator[Finding]:
    """Find Horovod's cycles that are so long that gradients wait for the next cycle."""
    timeline = failures.reported_timeline(evidence)
    if timeline is None or (cycles := timeline.cycles) is None:
        return
    transfer, queue = timeline.transfer.median, timeline.queue.median
    if not transfer or cycles.setting <= LONG_CYCLE * transfer:
        return
    if queue is not None and queue > WAITS * cycles.setting:
        yield Finding(
            title="gradients wait for the next cycle for longer than a transfer takes",
            evidence=f"HOROVOD_CYCLE_TIME is {cycles.setting * 1e3:g} ms, a transfer takes "
            f"{milliseconds(transfer)} and starts after {milliseconds(queue)}",
            fix="make cycles shorter: lower HOROVOD_CYCLE_TIME",
        )


# tensors of a batch below which fusion has little effect, and bytes below which latency dominates
FEW_TENSORS, SMALL_BATCH = 4.0, 64 << 10
# collectives, for a meaningful mean
MIN_BATCHES = 50


@rule(
    "small-batches",
    "ranks",
    summary="Gradients are sent a few at a time.",
    fix="Send more gradients together (dltune plan allreduce, HOROVOD_CYCLE_TIME).",
    order=2,
)
def small_batches(evidence: Evidence) -> Iterator[Finding]:
    """Find gradients that are sent a few at a time."""
    timeline = failures.reported_timeline(evidence)
    if timeline is None:
        return
    fused, sizes = timeline.fused.mean, [t.bytes for t in timeline.tensors if t.bytes is not None]
    if fused is None or timeline.batches < MIN_BATCHES or not sizes:
        return
    nbytes = fused * statistics.fmean(sizes)
    if fused < FEW_TENSORS and nbytes < SMALL_BATCH and len(timeline.tensors) > FEW_TENSORS:
        yield Finding(
            title="gradients are sent in small batches",
            evidence=f"{timeline.batches} collectives of {fused:.1f} tensors and about "
            f"{nbytes / 1024:.0f} KiB on average, each {milliseconds(timeline.transfer.median)}",
            fix="send more gradients together: bins in the order of the graph (dltune plan "
            "allreduce), or a longer HOROVOD_CYCLE_TIME",
        )


@rule(
    "timeline-recording",
    "ranks",
    summary="Recording Horovod's timeline uses a core.",
    fix="Switch the timeline off while you measure step times.",
    order=4,
)
def timeline_recording(evidence: Evidence) -> Iterator[Finding]:
    """Find the core that recording of Horovod's timeline uses."""
    for rank in failures.reported_ranks(evidence) if failures.reported_timeline(evidence) else ():
        for thread in rank.threads:
            if thread.name == WRITER:
                yield Finding(
                    title=f"recording the timeline uses {thread.cpu:.0%} of a core in rank "
                    f"{rank.rank}",
                    evidence=f"thread {thread.tid} writes the timeline and polls for records all "
                    "the time",
                    fix="switch it off (HOROVOD_TIMELINE) while you measure step times",
                )


@rule(
    "truncated-timeline",
    "ranks",
    summary="Horovod's timeline ends in the middle of a record.",
    fix="Let the job end normally; the figures cover the time before.",
    order=3,
)
def truncated_timeline(evidence: Evidence) -> Iterator[Finding]:
    """Find a timeline that ends in the middle of a record."""
    timeline = failures.reported_timeline(evidence)
    if timeline and timeline.truncated:
        yield Finding(
            title="the timeline ends in the middle of a record",
            evidence=f"{timeline.path}: {timeline.events} events before it are complete, "
            f"{timeline.seconds:.1f} s",
            fix="let the job end normally; the figures cover the time before",
        )
