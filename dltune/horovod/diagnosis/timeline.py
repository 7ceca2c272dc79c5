"""What Horovod's timeline shows: late ranks, small batches, cycles of the wrong length."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from dltune.documents.horovod import WRITER, Finding, Horovod

# cycles that transfer nothing
EMPTY = 0.95
# a cycle over a batch's transfer, beyond which it is the waiting for a cycle that takes time
LONG_CYCLE = 2.0
# tensors in a batch below which fusion does little, and bytes below which latency is all
FEW_TENSORS, SMALL_BATCH = 4.0, 64 << 10
# share of negotiations for which one rank was the last, over its even share
ALWAYS_LATE = 1.5


def late(report: Horovod) -> Iterator[Finding]:
    timeline = report.timeline
    if timeline is None or len(timeline.late) < 2:
        return
    rank, share = max(timeline.late.items(), key=lambda one: one[1])
    even = 1.0 / len(timeline.late)
    if share > min(ALWAYS_LATE * even, 0.9) and timeline.negotiation.samples >= 20:
        yield Finding(
            f"rank {rank} is the last to have its gradients {share:.0%} of the time",
            f"of {timeline.negotiation.samples} negotiations; evenly it would be {even:.0%}; "
            f"they take {_ms(timeline.negotiation.median)} at the median, "
            f"{_ms(timeline.negotiation.p95)} at the 95th percentile",
            "find what it does besides: its input, its core's other users, its batch",
        )


def batches(report: Horovod) -> Iterator[Finding]:
    timeline = report.timeline
    if timeline is None:
        return
    fused, sizes = timeline.fused.mean, [t.bytes for t in timeline.tensors if t.bytes is not None]
    if fused is None or timeline.batches < 50 or not sizes:
        return
    each = fused * statistics.fmean(sizes)
    if fused < FEW_TENSORS and each < SMALL_BATCH and len(timeline.tensors) > FEW_TENSORS:
        yield Finding(
            "gradients travel in small batches",
            f"{timeline.batches} collectives of {fused:.1f} tensors and about "
            f"{each / 1024:.0f} KiB on average, each {_ms(timeline.transfer.median)}",
            "let more of them come together: bins in the order of the graph (TOPO: dltune plan "
            "allreduce), or a longer HOROVOD_CYCLE_TIME",
        )


def cycle_time(report: Horovod) -> Iterator[Finding]:
    timeline = report.timeline
    if timeline is None or (cycles := timeline.cycles) is None:
        return
    transfer, queue = timeline.transfer.median, timeline.queue.median
    if cycles.empty is not None and cycles.empty > EMPTY and cycles.rate > 200:
        yield Finding(
            f"{cycles.empty:.0%} of cycles transfer nothing",
            f"{cycles.rate:.0f} cycles/s at HOROVOD_CYCLE_TIME {cycles.setting * 1e3:g} ms, "
            "and each asks every rank what it has",
            "let dltune plan allreduce say how long cycles should be (HOROVOD_CYCLE_TIME), or, "
            "over MPI, let the thread rest until there is something to send",
        )
    if (
        transfer
        and cycles.setting > LONG_CYCLE * transfer
        and queue is not None
        and queue > 0.5 * cycles.setting
    ):
        yield Finding(
            "gradients wait for the next cycle longer than they travel",
            f"HOROVOD_CYCLE_TIME is {cycles.setting * 1e3:g} ms, a transfer takes "
            f"{_ms(transfer)} and its turn comes after {_ms(queue)}",
            "make cycles shorter: a lower HOROVOD_CYCLE_TIME",
        )


def cut_short(report: Horovod) -> Iterator[Finding]:
    timeline = report.timeline
    if timeline and timeline.truncated:
        yield Finding(
            "the timeline ends in the middle of a record",
            f"{timeline.path}: {timeline.events} events before it are whole, "
            f"{timeline.seconds:.1f} s",
            "the job was ended while it wrote: its figures stand for the time before",
        )


def recording(report: Horovod) -> Iterator[Finding]:
    for rank in report.ranks if report.timeline else ():
        for thread in rank.threads:
            if thread.name == WRITER:
                yield Finding(
                    f"recording the timeline takes {thread.cpu:.0%} of a core of rank {rank.rank}",
                    f"thread {thread.tid} writes it, and asks for more without rest",
                    "switch it off (HOROVOD_TIMELINE) when step times are to be measured",
                )


def _ms(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds * 1e3:.3g} ms"
