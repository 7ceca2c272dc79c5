"""Storage that delivers more than the job uses, because of read-ahead or page size."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.formatting import file_name, size
from dltune.findings.data.waits import storage_share
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.schemas.diagnosis import Finding
from dltune.schemas.io import DataFile, Storage

# bytes from storage per used byte
AMPLIFIED = 1.5
# bytes from storage; fewer are no finding
MIN_BYTES = 8 << 20


@rule(
    "amplified-reading",
    "data",
    summary="Storage delivers more than the job uses, because of read-ahead or page size.",
    fix="Switch read-ahead off for shuffled access and give hints for the next records (dltune "
    "plan io), or give the page cache more memory.",
    order=3,
)
def find(evidence: Evidence) -> Iterator[Finding]:
    places = {place.device: place for place in evidence.io.storage} if evidence.io else {}
    for file in evidence.files:
        nbytes, amplification = file.storage_bytes or 0, file.amplification
        if amplification is None or amplification < AMPLIFIED or nbytes < MIN_BYTES:
            continue
        yield Finding(
            title=f"storage delivers {amplification:.1f} times the used part of "
            f"{file_name(file.path)}",
            evidence=f"{size(nbytes)} from storage, {size(file.asked or 0)} used; access is "
            f"{file.pattern.kind}, advice of the mapping: {file.advice or 'none'}"
            f"{_describe_read_ahead(places[file.device])}",
            fix=_choose_fix(file),
            share=storage_share(evidence),
            confidence="measured",
        )


def _describe_read_ahead(place: Storage) -> str:
    return f", read-ahead {size(place.read_ahead)}" if place.read_ahead else ""


def _choose_fix(file: DataFile) -> str:
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
