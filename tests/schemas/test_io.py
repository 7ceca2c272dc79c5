"""The io document: what it refuses."""

from __future__ import annotations

import msgspec
import pytest

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.schemas import io
from dltune.schemas.diagnosis import Finding

PLACE = io.Storage("254:0", "/", "/dev/vda", "ext4", 131072, False, "none", 256, True)
PATTERN = io.Pattern("strided", "faults", 100, 1.5e6, 2e5, 0.9)
FILE = io.DataFile(
    path="/data/train/data.mdb",
    format="lmdb",
    size=1 << 30,
    device="254:0",
    processes=(7,),
    mapped=1 << 30,
    resident=1 << 20,
    cached=1 << 20,
    storage_bytes=1 << 20,
    asked=1 << 19,
    amplification=2.0,
    advice="normal",
    direct=False,
    major=10,
    minor=100,
    shared=1.0,
    hot_size=1 << 24,
    hot=((0, 110),),
    requests=(io.Request(4096, 3),),
    pattern=PATTERN,
)
THREAD = io.Thread(7, "python", 10.0, 100, 5.0, 1.0, 0.1, 1000, 10, 3.0, 0.75, 10, 100)
PROCESS = io.Process(7, 1, "python", "me", 10.0, False, (THREAD,), 0, 10, 100, 5, 500, 1 << 20)
WATCH = io.Watch(
    seconds=10.0,
    faults_by="events",
    files=(FILE,),
    processes=(PROCESS,),
    pressure=(io.Pressure("io", "machine", 0.1, 0.0),),
    lines=(io.Line("train.py:3 (load)", 1.0, 4),),
    cost=io.Cost(0.1, 200, 0.02),
)
DOCUMENT = io.Io(
    io.SCHEMA, "2026-01-01T00:00:00+00:00", "0.1.0", "pid 7", None, (PLACE,), WATCH, None, (), ()
)


def with_watch(**changes: object) -> io.Io:
    return msgspec.structs.replace(DOCUMENT, watch=msgspec.structs.replace(WATCH, **changes))


def with_file(**changes: object) -> io.Io:
    return with_watch(files=(msgspec.structs.replace(FILE, **changes),))


def test_a_document_survives_its_file(tmp_path):
    path = tmp_path / "io.json"
    path.write_bytes(msgspec.json.encode(DOCUMENT))
    assert struct_faults("", DOCUMENT) == []
    assert io.load(path) == DOCUMENT


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        (
            msgspec.structs.replace(DOCUMENT, watch=None),
            "exactly one of watch and experiment must be present",
        ),
        (
            msgspec.structs.replace(DOCUMENT, storage=(PLACE, PLACE)),
            "each device only once, got '254:0' 2",
        ),
        (
            with_file(device="8:0"),
            ".device must be one of the devices in storage, got '8:0'",
        ),
        (
            with_file(processes=(8,)),
            ".processes must be one of the pids in watch.processes, got 8",
        ),
        (
            with_file(size=-1),
            "watch.files[0] (/data/train/data.mdb).size must be finite and not negative, got -1",
        ),
        (
            with_file(amplification=float("nan")),
            ".amplification must be finite and not negative, got nan",
        ),
        (with_file(requests=(io.Request(5000, 1),)), ".size must be a power of two, got 5000"),
        (
            with_file(pattern=io.Pattern("unknown", "calls", 3, None, None, 0.0)),
            ".source must be null exactly when kind is 'unknown'",
        ),
        (
            with_watch(processes=(PROCESS, PROCESS)),
            "watch.processes must contain each pid only once, got 7 2 times",
        ),
        (
            with_watch(processes=(msgspec.structs.replace(PROCESS, threads=(THREAD, THREAD)),)),
            ".threads must contain each tid only once, got 7 2 times",
        ),
        (
            with_watch(pressure=(io.Pressure("io", "job", 1.5, None),)),
            "watch.pressure[0] (io).some must be at most 1, got 1.5",
        ),
    ],
)
def test_what_cannot_be(document, fault):
    assert any(fault in told for told in struct_faults("", document))


def test_all_faults_are_told_at_once(tmp_path):
    path = tmp_path / "io.json"
    path.write_bytes(msgspec.json.encode(with_file(device="8:0", size=-1, processes=(8,))))
    with pytest.raises(UsageError) as told:
        io.load(path)
    assert str(told.value).count("\n") == 3


def test_an_older_schema_is_told(tmp_path):
    path = tmp_path / "io.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(DOCUMENT, schema="dltune.io/9")))
    with pytest.raises(UsageError, match=r"schema 'dltune.io/9'"):
        io.load(path)


def test_findings_are_checked():
    costly = Finding(cause="slow-store", title="it is slow", evidence="1 MiB/s", share=2.0)
    document = msgspec.structs.replace(DOCUMENT, findings=(costly,))
    assert "findings[0] (slow-store).share must be between 0 and 1, got 2.0" in struct_faults(
        "", document
    )
