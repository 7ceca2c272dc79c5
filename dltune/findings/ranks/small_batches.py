"""Gradients that travel a few at a time."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.words import milliseconds

# tensors in a batch below which fusion does little, and bytes below which latency is all
FEW_TENSORS, SMALL_BATCH = 4.0, 64 << 10
# collectives of which a mean tells something
MANY = 50


@rule(
    "small-batches",
    "ranks",
    summary="Gradients are sent a few at a time.",
    fix="Send more gradients together (dltune plan allreduce, HOROVOD_CYCLE_TIME).",
    order=2,
)
def find(seen: Seen) -> Iterator[Finding]:
    timeline = seen.horovod.timeline if seen.horovod else None
    if timeline is None:
        return
    fused, sizes = timeline.fused.mean, [t.bytes for t in timeline.tensors if t.bytes is not None]
    if fused is None or timeline.batches < MANY or not sizes:
        return
    each = fused * statistics.fmean(sizes)
    if fused < FEW_TENSORS and each < SMALL_BATCH and len(timeline.tensors) > FEW_TENSORS:
        yield Finding(
            title="gradients are sent in small batches",
            evidence=f"{timeline.batches} collectives of {fused:.1f} tensors and about "
            f"{each / 1024:.0f} KiB on average, each {milliseconds(timeline.transfer.median)}",
            fix="send more gradients together: bins in the order of the graph (dltune plan "
            "allreduce), "
            "or a longer HOROVOD_CYCLE_TIME",
        )
