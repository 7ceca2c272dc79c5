"""Readers that know the offsets of their records (thesis, Fig. 4.2 and section 5.2.2)."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import rate
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding

# speed relative to another way to read; smaller differences are no finding
MIN_SPEEDUP = 1.25


@rule(
    "exact-offsets",
    "data",
    summary="Readers that know the offsets of their records are faster (thesis, Fig. 4.2 and "
    "section 5.2.2).",
    fix="Take offsets from the index (dltune lmdb index) instead of LMDB's cursor.",
    order=7,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    strided = evidence.experiment.strided if evidence.experiment else ()
    cursor = {r.readers: r for r in strided if r.walk == "cursor"}
    most = max(cursor, default=0)
    others = [r for r in strided if r.readers == most and r.walk == "offsets"]
    if not others:
        return
    present, best = cursor[most], max(others, key=lambda r: r.throughput.median)
    speedup = best.throughput.median / max(1.0, present.throughput.median)
    if speedup >= MIN_SPEEDUP:
        fewer = present.switches.median / best.switches.median if best.switches.median else 0.0
        switches = f", {fewer:.0f} times fewer switches" if fewer >= 1 else ""
        yield Finding(
            title=f"{most} readers that use exact offsets are {speedup:.1f} times as fast",
            evidence=f"{rate(best.throughput.median)} with exact offsets ({best.method}), "
            f"{rate(present.throughput.median)} when they pass other readers' records{switches}",
            fix="take offsets from the index (dltune lmdb index) instead of LMDB's cursor",
            confidence="measured",
        )
