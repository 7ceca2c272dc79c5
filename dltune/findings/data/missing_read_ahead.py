"""A file that is read sequentially although its mapping switches read-ahead off."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import file_name
from dltune.findings.data.amplified_reading import MIN_BYTES
from dltune.findings.data.waits import storage_share
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding


@rule(
    "missing-read-ahead",
    "data",
    summary="A file is read sequentially, although its mapping switches read-ahead off.",
    fix="Open the file with read-ahead (readahead=True in py-lmdb).",
    order=3,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    for file in evidence.files:
        pattern, nbytes = file.pattern, file.storage_bytes or 0
        if pattern.kind == "sequential" and file.advice == "random" and nbytes >= MIN_BYTES:
            yield Finding(
                title=f"{file_name(file.path)} is read sequentially, with read-ahead switched off",
                evidence=f"access is sequential ({pattern.offsets} offsets seen), but the mapping "
                "announces random access",
                fix="open the file with read-ahead: readahead=True in py-lmdb, no MADV_RANDOM "
                "elsewhere",
                share=storage_share(evidence),
                confidence="measured",
            )
