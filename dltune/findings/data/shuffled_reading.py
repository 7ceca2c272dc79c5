"""A file that is read in shuffled order without hints to the kernel."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import file_name, size
from dltune.findings.data.amplified_reading import MIN_BYTES
from dltune.findings.data.waits import storage_share
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding
from dltune.schemas.io import DataFile

# pages of a piece for which read-ahead is useful
PAGES = 4
PAGE = 4096  # bytes
BY_PAGE = (
    "open the file with read-ahead (readahead=True in py-lmdb, no MADV_RANDOM elsewhere), since "
    "each page is now a separate request; or "
)


@rule(
    "shuffled-reading",
    "data",
    summary="A file is read in shuffled order without hints to the kernel.",
    fix="Give hints for the records of the next batches (dltune plan io).",
    order=3,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    for file in evidence.files:
        if file.pattern.kind == "shuffled" and (file.storage_bytes or 0) >= MIN_BYTES:
            yield Finding(
                title=f"{file_name(file.path)} is read in shuffled order, one record at a time",
                evidence=f"{file.pattern.offsets} offsets seen, pieces of "
                f"{size(file.pattern.run or 0)}; the kernel has no hint which one comes next",
                fix=(BY_PAGE if _is_read_by_page(file) else "")
                + "give hints for the records of the next batches (posix_fadvise(WILLNEED), from "
                "the sampler's order): dltune plan io does that for the unchanged job",
                share=storage_share(evidence),
                confidence="measured",
            )


def _is_read_by_page(file: DataFile) -> bool:
    return file.advice == "random" and (file.pattern.run or 0) >= PAGES * PAGE
