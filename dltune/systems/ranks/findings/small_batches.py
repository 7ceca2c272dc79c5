"""Gradients that are sent a few at a time."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from dltune.base.formatting import milliseconds
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding
from dltune.systems.ranks.findings import report

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
def find(evidence: Evidence) -> Iterator[Finding]:
    timeline = report.timeline(evidence)
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
