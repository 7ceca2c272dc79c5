"""A file that is read in shuffled order without a hint to the kernel."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.documents.io import DataFile
from dltune.findings.data.amplified_reading import WORTH
from dltune.findings.data.waits import storage_share
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.words import file_name, size

# a piece of so many pages is worth more read-ahead than it takes of other pieces
PAGES = 4
PAGE = 4096  # bytes
BY_PAGE = (
    "open it with read-ahead (readahead=True in py-lmdb, no MADV_RANDOM elsewhere): now each page "
    "of a piece is a request of its own; or "
)


@rule(
    "shuffled-reading",
    "data",
    summary="A file that is read in shuffled order without a hint to the kernel.",
    fix="",
)
def find(seen: Seen) -> Iterator[Finding]:
    for file in seen.io.watch.files if seen.io and seen.io.watch else ():
        if file.pattern.kind == "shuffled" and (file.storage_bytes or 0) >= WORTH:
            yield Finding(
                cause="shuffled-reading",
                title=f"{file_name(file.path)} is read in shuffled order, one piece after the other",
                evidence=f"{file.pattern.offsets} offsets seen, pieces of {size(file.pattern.run or 0)}; "
                "nothing tells the kernel which comes next",
                fix=(BY_PAGE if _by_page(file) else "")
                + "tell it: posix_fadvise(WILLNEED) for the records of the next batches, from the "
                "sampler and the index of the file, while the job reads as before",
                share=storage_share(seen),
                confidence="measured",
            )


def _by_page(file: DataFile) -> bool:
    return file.advice == "random" and (file.pattern.run or 0) >= PAGES * PAGE
