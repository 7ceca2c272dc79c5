"""Read calls that ask for little at a time."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.findings.data.waits import storage_share
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.words import file_name, share, size

# bytes; and calls that were seen waiting, of which a share tells something
SMALL, MANY = 128 << 10, 20


@rule(
    "small-reads",
    "data",
    summary="Read calls request little data at a time.",
    fix="Read 1 MiB or more at a time.",
    order=3,
)
def find(seen: Seen) -> Iterator[Finding]:
    for file in seen.io.watch.files if seen.io and seen.io.watch else ():
        waits = sum(request.seen for request in file.requests)
        small = sum(request.seen for request in file.requests if request.size < SMALL)
        if waits >= MANY and small > waits / 2 and file.pattern.kind != "shuffled":
            largest = max(request.size for request in file.requests)
            yield Finding(
                title=f"{file_name(file.path)} is read in small pieces",
                evidence=f"{share(small / waits)} of the read calls that waited request less than "
                f"{size(SMALL)}, and none more than {size(largest)}",
                fix="read 1 MiB or more at a time: buffer_size in TFRecordDataset, buffering in "
                "open()",
                share=storage_share(seen),
                confidence="measured",
            )
