"""Hints that make a reader of shuffled records faster."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import rate
from dltune.findings.data.exact_offsets import MIN_SPEEDUP
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding


@rule(
    "unhinted-shuffle",
    "data",
    summary="Hints make shuffled reading of this file faster.",
    fix="Give hints (posix_fadvise WILLNEED) from the sampler's order (dltune plan io).",
    order=6,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    shuffled = evidence.experiment.shuffled if evidence.experiment else ()
    mapped = {(r.advised, r.ahead > 0): r for r in shuffled if r.method == "mmap"}
    if not {(False, False), (True, False), (True, True)} <= mapped.keys():
        return
    normal, random, hinted = mapped[False, False], mapped[True, False], mapped[True, True]
    better = max((normal, random), key=lambda r: r.throughput.median)
    speedup = hinted.throughput.median / max(1.0, better.throughput.median)
    if speedup >= MIN_SPEEDUP:
        yield Finding(
            title=f"shuffled records are read {speedup:.1f} times as fast with hints for the next "
            "records",
            evidence=f"{rate(hinted.throughput.median)} with hints {hinted.ahead} records ahead, "
            f"{rate(normal.throughput.median)} with read-ahead and "
            f"{rate(random.throughput.median)} without",
            fix="give hints (posix_fadvise WILLNEED) from the sampler's order and the index "
            "(dltune plan io)",
            confidence="measured",
        )
