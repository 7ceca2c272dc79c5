"""Storage that delivers more than is used, by read-ahead or by pages."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.documents.io import DataFile, Storage
from dltune.findings.data.waits import storage_share
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.words import file_name, size

# bytes from storage for each byte asked
AMPLIFIED = 1.5
# bytes from storage that are worth a finding
WORTH = 8 << 20


@rule(
    "amplified-reading",
    "data",
    summary="Storage delivers more than the job uses, because of read-ahead or page size.",
    fix="Switch read-ahead off for shuffled access and give hints for the next records (dltune "
    "plan io), or give the page cache more memory.",
    order=3,
)
def find(seen: Seen) -> Iterator[Finding]:
    places = {place.device: place for place in seen.io.storage} if seen.io else {}
    for file in seen.io.watch.files if seen.io and seen.io.watch else ():
        came, amplification = file.storage_bytes or 0, file.amplification
        if amplification is None or amplification < AMPLIFIED or came < WORTH:
            continue
        yield Finding(
            title=f"storage delivers {amplification:.1f} times the used part of "
            f"{file_name(file.path)}",
            evidence=f"{size(came)} from storage, {size(file.asked or 0)} used; access is "
            f"{file.pattern.kind}, advice of the mapping: {file.advice or 'none'}"
            f"{_ahead(places[file.device])}",
            fix=_cure(file),
            share=storage_share(seen),
            confidence="measured",
        )


def _ahead(place: Storage) -> str:
    return f", read-ahead {size(place.read_ahead)}" if place.read_ahead else ""


def _cure(file: DataFile) -> str:
    if file.pattern.kind == "sequential":
        return (
            "give the job more memory for the page cache, or use fewer readers: pages are dropped "
            "before they are used, or are read for other processes"
        )
    if file.advice == "random":
        return "store records together that are read together: they are smaller than pages"
    return (
        "switch read-ahead off (readahead=False in py-lmdb, MADV_RANDOM elsewhere), and give hints "
        "for the next batches (dltune plan io)"
    )
