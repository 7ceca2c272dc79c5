"""Findings on how a job reads its data, each from figures that call for it."""

from __future__ import annotations

import msgspec
import pytest
from looked import looked
from observations import host, observation, process
from synthetic import machine, node, profile

from dltune.analysis.roofline import analyse
from dltune.findings.evidence import Evidence
from dltune.schemas import io
from dltune.schemas.diagnosis import Finding
from dltune.schemas.profile import Part, Profile

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


def document(watch: io.Watch) -> io.Io:
    return io.Io(io.SCHEMA, "", "", "pid 1", None, (PLACE,), watch, None, (), ())


def watched(
    file: io.DataFile | None, *processes: io.Process, pressure: tuple[io.Pressure, ...] = ()
) -> io.Watch:
    return io.Watch(
        seconds=100.0,
        faults_by="events",
        files=(file,) if file else (),
        processes=processes or (PROCESS,),
        pressure=pressure,
        lines=(io.Line("train.py:3 (load)", 0.8, 10),),
        cost=io.Cost(0.1, 200, 0.001),
    )


def told(
    file: io.DataFile | None, *processes: io.Process, pressure: tuple[io.Pressure, ...] = ()
) -> tuple[Finding, ...]:
    return looked(Evidence(io=document(watched(file, *processes, pressure=pressure))))


def parts(made: Profile) -> Profile:
    """Steps that wait for their data in 30 % of their time."""
    told = (Part("ops", 0.07), Part("input", 0.03))
    return replace(made, steps=(replace(made.steps[0], parts=told),))


def said(findings: tuple[Finding, ...], part: str) -> Finding:
    (found,) = [finding for finding in findings if part in finding.title]
    return found


def test_a_job_whose_data_are_cached_is_left_alone():
    (only,) = told(FILE)
    assert only.title == "reading does not slow down the job: the data came from the page cache"
    assert only.fix is None


def test_no_data_file():
    (small_files,) = told(None, PROCESS, replace(PROCESS, pid=2, read_calls=3000, read=7 * MIB))
    assert small_files.title == "no data file was found"
    assert "pid 2 and its ended children read 7.0 MiB in 3,000 read calls" in small_files.evidence
    denied = replace(PROCESS, read=None, read_calls=None, storage_bytes=None)
    assert told(None, denied)[0].fix == "run dltune as the job's user or as root"


def test_readers_of_the_same_pages():
    processes = [
        replace(PROCESS, pid=pid, threads=(replace(THREAD, tid=pid, voluntary=757),))
        for pid in range(1, 9)
    ]
    file = replace(FILE, shared=7.6, processes=tuple(range(1, 9)), storage_bytes=200 * MIB)
    found = said(told(file, *processes), "processes fault on the same pages")
    assert found.title == "8 processes fault on the same pages of train/data.mdb"
    assert "7.6 processes faulted on each page" in found.evidence
    assert "6,056 voluntary context switches" in found.evidence
    assert "exact offset" in (found.fix or "")


def test_read_ahead_that_is_not_used():
    pattern = io.Pattern("shuffled", "faults", 500, None, 3000.0, 1.0)
    file = replace(FILE, storage_bytes=GIB, amplification=10.24, pattern=pattern)
    found = said(told(file), "storage delivers 10.2 times")
    assert "1.0 GiB from storage, 100 MiB used; access is shuffled" in found.evidence
    assert "read-ahead 128 KiB" in found.evidence
    assert "readahead=False" in (found.fix or "")
    assert said(told(file), "shuffled order").fix


def test_read_ahead_that_is_missed():
    pattern = io.Pattern("sequential", "faults", 500, None, 3000.0, 1.0)
    file = replace(FILE, storage_bytes=GIB, advice="random", pattern=pattern)
    assert "readahead=True" in (said(told(file), "switched off").fix or "")


def test_records_of_many_pages_that_are_read_page_by_page():
    pattern = io.Pattern("shuffled", "faults", 500, None, 48_000.0, 1.0)
    file = replace(FILE, storage_bytes=GIB, advice="random", pattern=pattern)
    assert "readahead=True" in (said(told(file), "shuffled order").fix or "")
    pages = replace(file, pattern=replace(pattern, run=4096.0))
    assert "readahead" not in (said(told(pages), "shuffled order").fix or "")


def test_small_reads():
    calls = (io.Request(4096, 30), io.Request(1 << 20, 5))
    file = replace(FILE, requests=calls, format="tfrecord", path="/data/shard-1")
    found = said(told(file), "small pieces")
    assert found.title == "shard-1 is read in small pieces"
    assert found.evidence.startswith("86% of the read calls")


def test_a_thread_that_waits():
    thread = replace(THREAD, waiting=60.0, sleep_share=0.95)
    found = said(told(FILE, replace(PROCESS, threads=(thread,))), "waits for storage for 60%")
    assert "asleep for 95% of its reading" in found.evidence
    assert "train.py:3 (load) in 80% of samples" in found.evidence
    assert found.share == pytest.approx(0.6)


def test_a_short_wait_comes_last_and_costs_nothing_that_is_known():
    thread = replace(THREAD, waiting=4.0, sleep_share=0.5, queued=50.0)
    first, last = told(FILE, replace(PROCESS, threads=(thread,)))
    assert "for a CPU" in first.title
    assert "waits for storage for 4.0%" in last.title
    assert (last.fix, last.share) == (None, None)


def test_the_wait_of_another_thread_costs_what_steps_wait_for_data():
    thread = replace(THREAD, tid=2, waiting=60.0, sleep_share=0.95)
    process = replace(PROCESS, threads=(thread,))
    assert said(told(FILE, process), "waits for storage for 60%").share is None
    waiting = parts(profile(machine(2), [], {"train": [node("Conv2D", None)]}, span=0.1))
    watch = document(watched(FILE, process))
    first = looked(Evidence(io=watch, profile=analyse(waiting)))[0]
    assert (first.cause, first.share) == ("slow-store", pytest.approx(0.3))


def test_many_sleeps_for_little():
    thread = replace(THREAD, voluntary=100_000, sleep_share=0.5, waiting=5.0)
    found = said(told(FILE, replace(PROCESS, threads=(thread,))), "sleep 1,000 times")
    assert "100,000 voluntary switches of 1 threads" in found.evidence


def test_threads_without_a_cpu():
    thread = replace(THREAD, queued=50.0)
    assert said(told(FILE, replace(PROCESS, threads=(thread,))), "for a CPU").fix


@pytest.mark.parametrize(("share", "findings"), [(0.2, 1), (0.01, 0)])
def test_memory_that_is_short(share, findings):
    found = told(FILE, pressure=(io.Pressure("memory", "job", share, 0.0),))
    assert sum("memory is short" in one.title for one in found) == findings


@pytest.mark.parametrize(
    ("of", "waited", "share"),
    [("job", 0.2, 0.2), ("job", 0.0, None), ("machine", 0.2, 0.6), ("machine", 0.01, None)],
)
def test_pages_of_files_are_let_go_at_the_limit_without_a_wait(of, waited, share):
    at_limit = observation(
        host=host(memory_limit=1000 * MIB, reclaims=5000.0),
        processes=(process(cpu=1.0, kernel=0.6),),
    )
    pressed = document(watched(FILE, pressure=(io.Pressure("memory", of, waited, 0.0),)))
    found = looked(Evidence(observation=at_limit, io=pressed))
    assert [one.share for one in found if one.cause == "memory-pressure"] == [share][: bool(share)]
