"""Readers that touch records of other readers (thesis, Fig. 4.2)."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import share, size
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding

# extra bytes per byte of records
EXTRA = 0.05


@rule(
    "passed-records",
    "data",
    summary="Readers touch records of other readers (thesis, Fig. 4.2).",
    fix="Take offsets from the index (dltune lmdb index) instead of LMDB's cursor.",
    order=8,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    experiment = evidence.experiment
    cursor = [r for r in experiment.strided if r.walk == "cursor"] if experiment else []
    widest = max(cursor, key=lambda r: r.readers, default=None)
    if experiment and widest and widest.extra >= EXTRA:
        yield Finding(
            title=f"{widest.readers} readers touch {share(widest.extra)} more data than their "
            "own records",
            evidence="LMDB's cursor passes pages of other readers' records; a record has "
            f"{size(experiment.mean_size)} on average",
            fix="take offsets from the index (dltune lmdb index) instead of LMDB's cursor",
            confidence="measured",
        )
