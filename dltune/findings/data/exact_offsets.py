"""What readers gain that know where their records lie (Fig. 4.2 and section 5.2.2)."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.words import rate

# a way that is so much faster is worth a sentence
WORTH = 1.25


@rule(
    "exact-offsets",
    "data",
    summary="Readers that know the offsets of their records are faster (thesis, Fig. 4.2 and "
    "section 5.2.2).",
    fix="Take offsets from the index (dltune lmdb index) instead of LMDB's cursor.",
    order=7,
)
def find(seen: Seen) -> Iterator[Finding]:
    strided = seen.io.experiment.strided if seen.io and seen.io.experiment else ()
    cursor = {r.readers: r for r in strided if r.walk == "cursor"}
    most = max(cursor, default=0)
    others = [r for r in strided if r.readers == most and r.walk == "offsets"]
    if not others:
        return
    present, best = cursor[most], max(others, key=lambda r: r.throughput.median)
    gain = best.throughput.median / max(1.0, present.throughput.median)
    if gain >= WORTH:
        fewer = present.switches.median / best.switches.median if best.switches.median else 0.0
        switches = f", {fewer:.0f} times fewer switches" if fewer >= 1 else ""
        yield Finding(
            title=f"{most} readers that use exact offsets are {gain:.1f} times as fast",
            evidence=f"{rate(best.throughput.median)} with exact offsets ({best.method}), "
            f"{rate(present.throughput.median)} when they pass other readers' records{switches}",
            fix="take offsets from the index (dltune lmdb index) instead of LMDB's cursor",
            confidence="measured",
        )
