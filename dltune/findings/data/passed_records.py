"""What readers touch of records that are not theirs (Fig. 4.2)."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.words import share, size

# for each byte of records
EXTRA = 0.05


@rule(
    "passed-records",
    "data",
    summary="Readers touch records of other readers (thesis, Fig. 4.2).",
    fix="Take offsets from the index (dltune lmdb index) instead of LMDB's cursor.",
    order=8,
)
def find(seen: Seen) -> Iterator[Finding]:
    experiment = seen.io.experiment if seen.io else None
    cursor = [r for r in experiment.strided if r.walk == "cursor"] if experiment else []
    present = max(cursor, key=lambda r: r.readers, default=None)
    if experiment and present and present.extra >= EXTRA:
        yield Finding(
            title=f"{present.readers} readers touch {share(present.extra)} more data than their "
            "own records",
            evidence="LMDB's cursor passes pages of other readers' records; a record has "
            f"{size(experiment.mean_size)} on average",
            fix="take offsets from the index (dltune lmdb index) instead of LMDB's cursor",
            confidence="measured",
        )
