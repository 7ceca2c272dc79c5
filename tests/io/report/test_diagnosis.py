"""Sentences follow from figures."""

from __future__ import annotations

import msgspec
import pytest

from dltune.documents import io
from dltune.io.report.diagnosis import diagnose

replace = msgspec.structs.replace
PLACE = io.Storage("254:0", "/", "/dev/vda", "ext4", 131072, False, "none", 256, True)
UNKNOWN = io.Pattern("unknown", None, 0, None, None, 0.0)
GIB, MIB = 1 << 30, 1 << 20
FILE = io.DataFile(
    path="/data/train/data.mdb",
    format="lmdb",
    size=GIB,
    device="254:0",
    processes=(1,),
    mapped=GIB,
    resident=0,
    cached=GIB,
    storage_bytes=0,
    asked=100 * MIB,
    amplification=0.0,
    advice="normal",
    direct=False,
    major=0,
    minor=100,
    shared=1.0,
    hot_size=GIB,
    hot=(),
    requests=(),
    pattern=UNKNOWN,
)
THREAD = io.Thread(1, "python", 100.0, 1000, 90.0, 1.0, 0.1, 1000, 10, 0.0, None, 0, 100)
PROCESS = io.Process(1, 0, "python", "me", 100.0, False, (THREAD,), 0, 0, 100, 5, 500, 0)


def told(
    file: io.DataFile | None, *processes: io.Process, pressure: tuple[io.Pressure, ...] = ()
) -> list[io.Finding]:
    watch = io.Watch(
        seconds=100.0,
        faults_by="events",
        files=(file,) if file else (),
        processes=processes or (PROCESS,),
        pressure=pressure,
        lines=(io.Line("train.py:3 (load)", 0.8, 10),),
        cost=io.Cost(0.1, 200, 0.001),
    )
    return list(diagnose(watch, (PLACE,)))


def said(findings: list[io.Finding], part: str) -> io.Finding:
    (found,) = [finding for finding in findings if part in finding.said]
    return found


def test_a_job_whose_data_are_cached_is_left_alone():
    (only,) = told(FILE)
    assert only.said == "reading is not held up: the data came from the page cache"
    assert only.advice is None


def test_no_data_file():
    assert told(None)[0].said == "no data file was seen"
    denied = replace(PROCESS, read=None, read_calls=None, storage_bytes=None)
    assert told(None, denied)[0].advice == "watch as the job's user or as root"


def test_readers_of_the_same_pages():
    processes = [
        replace(PROCESS, pid=pid, threads=(replace(THREAD, tid=pid, voluntary=757),))
        for pid in range(1, 9)
    ]
    file = replace(FILE, shared=7.6, processes=tuple(range(1, 9)), storage_bytes=200 * MIB)
    found = said(told(file, *processes), "processes fault on the same pages")
    assert found.said == "8 processes fault on the same pages of train/data.mdb"
    assert "by 7.6 processes" in found.evidence
    assert "6,056 voluntary context switches" in found.evidence
    assert "exact offset" in (found.advice or "")


def test_read_ahead_that_is_not_used():
    pattern = io.Pattern("shuffled", "faults", 500, None, 3000.0, 1.0)
    file = replace(FILE, storage_bytes=GIB, amplification=10.24, pattern=pattern)
    found = said(told(file), "storage delivers 10.2 times")
    assert "1.0 GiB from storage, 100 MiB used; access is shuffled" in found.evidence
    assert "read-ahead 128 KiB" in found.evidence
    assert "readahead=False" in (found.advice or "")
    assert said(told(file), "shuffled order").advice


def test_read_ahead_that_is_missed():
    pattern = io.Pattern("sequential", "faults", 500, None, 3000.0, 1.0)
    file = replace(FILE, storage_bytes=GIB, advice="random", pattern=pattern)
    assert "readahead=True" in (said(told(file), "switched off").advice or "")


def test_small_reads():
    calls = (io.Request(4096, 30), io.Request(1 << 20, 5))
    file = replace(FILE, requests=calls, format="tfrecord", path="/data/shard-1")
    found = said(told(file), "small pieces")
    assert found.said == "shard-1 is read in small pieces"
    assert found.evidence.startswith("86% of the read calls")


def test_a_thread_that_waits():
    thread = replace(THREAD, waiting=60.0, sleep_share=0.95)
    found = said(told(FILE, replace(PROCESS, threads=(thread,))), "waits for storage 60%")
    assert "asleep for 95% of its reading" in found.evidence
    assert "train.py:3 (load) in 80% of looks" in found.evidence


def test_many_sleeps_for_little():
    thread = replace(THREAD, voluntary=100_000, sleep_share=0.5, waiting=5.0)
    found = said(told(FILE, replace(PROCESS, threads=(thread,))), "go to sleep 1,000 times")
    assert "100,000 voluntary switches of 1 threads" in found.evidence


def test_threads_without_a_cpu():
    thread = replace(THREAD, queued=50.0)
    assert said(told(FILE, replace(PROCESS, threads=(thread,))), "for a CPU").advice


@pytest.mark.parametrize(("share", "findings"), [(0.2, 1), (0.01, 0)])
def test_memory_that_is_short(share, findings):
    found = told(FILE, pressure=(io.Pressure("memory", "job", share, 0.0),))
    assert sum("memory is short" in one.said for one in found) == findings
