"""Larger blocks, if they are read faster (thesis, Fig. 5.1)."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import rate, size
from dltune.findings.data.exact_offsets import MIN_SPEEDUP
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding


@rule(
    "block-size",
    "data",
    summary="Larger blocks are read faster (thesis, Fig. 5.1).",
    fix="Read larger blocks: join neighbouring records into one read.",
    order=8,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    experiment = evidence.experiment
    blocks = experiment.blocks if experiment else ()
    unmapped = [b for b in blocks if experiment and b.method == experiment.ceiling.method] or [
        b for b in blocks if b.method != "mmap"
    ]
    if not unmapped:
        return
    small, best = unmapped[0], max(unmapped, key=lambda b: b.throughput.median)
    speedup = best.throughput.median / max(1.0, small.throughput.median)
    if speedup < MIN_SPEEDUP:
        return
    mapped = max((b.throughput.median for b in blocks if b.method == "mmap"), default=None)
    mapping = f"; a mapping reaches at most {rate(mapped)}, at any block size" if mapped else ""
    yield Finding(
        title=f"blocks of {size(best.block)} are read {speedup:.1f} times as fast as blocks of "
        f"{size(small.block)}",
        evidence=f"{best.method}: {rate(best.throughput.median)} against "
        f"{rate(small.throughput.median)}{mapping}",
        fix=f"read {size(best.block)} at a time: join neighbouring records into one read",
        confidence="measured",
    )
