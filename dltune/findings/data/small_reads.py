"""Read calls that request little data at a time."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import file_name, share, size
from dltune.findings.data.waits import storage_share
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding

# bytes, and waiting calls for a meaningful share
SMALL, MIN_CALLS = 128 << 10, 20


@rule(
    "small-reads",
    "data",
    summary="Read calls request little data at a time.",
    fix="Read 1 MiB or more at a time.",
    order=3,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    for file in evidence.files:
        waits = sum(request.seen for request in file.requests)
        small = sum(request.seen for request in file.requests if request.size < SMALL)
        if waits >= MIN_CALLS and small > waits / 2 and file.pattern.kind != "shuffled":
            largest = max(request.size for request in file.requests)
            yield Finding(
                title=f"{file_name(file.path)} is read in small pieces",
                evidence=f"{share(small / waits)} of the read calls that waited request less than "
                f"{size(SMALL)}, and none more than {size(largest)}",
                fix="read 1 MiB or more at a time: buffer_size in TFRecordDataset, buffering in "
                "open()",
                share=storage_share(evidence),
                confidence="measured",
            )
