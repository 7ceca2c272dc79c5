"""Findings on a file that was read in every way, each from speeds that call for it."""

from __future__ import annotations

from typing import Any

import msgspec
from looked import looked

from dltune.base.documents import struct_faults
from dltune.findings.evidence import Evidence
from dltune.schemas import io
from dltune.schemas.diagnosis import Finding

MIB = 1 << 20
PLACE = io.Storage("8:1", "/", "/dev/sda", "ext4", 131072, True, "none", 64, True)


def at(mib: float) -> io.Measured:
    """MiB a second."""
    return io.Measured(mib * MIB, 0.02, 5)


def strided(readers: int, walk: io.Walk, mib: float, extra: float = 0.0) -> io.Strided:
    share = io.Measured(0.5, 0.02, 5)
    return io.Strided(readers, walk, "mmap", at(mib), share, share, share, share, extra, None)


def shuffled(advised: bool, ahead: int, mib: float) -> io.Random:
    return io.Random("mmap", advised, ahead, at(mib), io.Measured(1e-3, 0.02, 5), None)


EVEN = io.Experiment(
    path="/data/train.lmdb",
    format="lmdb",
    size=1 << 30,
    device="8:1",
    readers=(1, 8),
    records=1000,
    mean_size=1e5,
    window=1 << 27,
    repeats=3,
    seconds=60.0,
    cold="no page was resident",
    ceiling=io.Ceiling("direct", MIB, 4, at(100)),
    strided=(
        strided(1, "cursor", 95),
        strided(8, "cursor", 95),
        strided(8, "offsets", 95),
    ),
    blocks=(io.Block("direct", 65536, at(95), at(1), at(0)),),
    shuffled=(shuffled(False, 0, 50), shuffled(True, 0, 50), shuffled(True, 64, 50)),
    seek=None,
    share_of_ceiling=0.95,
)


def found(**changes: Any) -> tuple[Finding, ...]:
    experiment = msgspec.structs.replace(EVEN, **changes)
    document = io.Io(io.SCHEMA, "", "", experiment.path, None, (PLACE,), None, experiment, (), ())
    assert struct_faults("", document) == []
    return looked(Evidence(io=document))


def claims(**changes: Any) -> str:
    return "\n".join(one.title for one in found(**changes))


def test_a_store_that_one_reader_takes_whole():
    first, last = found()
    assert first.title.startswith("one reader reaches the storage's rate; 8 strided readers only")
    assert "process per node" in (first.fix or "")
    assert last.title.startswith(
        "one sequential reader through a mapping reaches 95% of the storage"
    )
    assert last.fix is None


def test_a_mapping_far_below_the_store():
    first = found(share_of_ceiling=0.3)[0]
    assert "only 30%" in first.title
    assert first.fix == "read with requests of 1.0 MiB, 4 at a time (O_DIRECT), at exact offsets"


def test_hints_come_before_exact_offsets_and_these_before_what_readers_gain():
    slow = (strided(1, "cursor", 30), strided(8, "cursor", 30, 0.2), strided(8, "offsets", 60))
    hinted = (shuffled(False, 0, 5), shuffled(True, 0, 10), shuffled(True, 64, 50))
    blocks = (
        io.Block("mmap", 65536, at(30), at(1), at(0)),
        io.Block("direct", 65536, at(30), at(1), at(0)),
        io.Block("direct", MIB, at(90), at(1), at(0)),
    )
    told = found(strided=slow, shuffled=hinted, blocks=blocks, share_of_ceiling=0.3)
    assert [one.cause for one in told] == [
        "unhinted-shuffle",
        "exact-offsets",
        "mapped-reading",
        "more-readers",
        "shuffled-read-ahead",
        "block-size",
        "passed-records",
    ]
    assert "are read 5.0 times as fast with hints for the next" in told[0].title
    assert "8 readers that use exact offsets are 2.0 times as fast" in told[1].title
    assert "they fault on the same pages" in told[3].title
    assert "2.0 times as fast without read-ahead of 128 KiB" in told[4].title
    assert "blocks of 1.0 MiB are read 3.0 times as fast as blocks of 64 KiB" in told[5].title
    assert "a mapping reaches at most 30 MiB/s" in told[5].evidence
    assert "touch 20% more data than their own records" in told[6].title


def test_readers_that_help_each_other():
    fast = (strided(1, "cursor", 30), strided(8, "cursor", 90))
    assert "8 strided readers are 3.0 times as fast as 1" in claims(strided=fast)
