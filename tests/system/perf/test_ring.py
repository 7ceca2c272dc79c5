from __future__ import annotations

import collections
import mmap
import os
import struct
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_work import open_events, touch, untouched

from dltune.base.errors import DltuneError, UsageError
from dltune.system.perf.access import available
from dltune.system.perf.events import parse
from dltune.system.perf.ring import (
    LOST,
    LOST_SAMPLES,
    SAMPLE,
    THROTTLE,
    UNTHROTTLE,
    Lost,
    Other,
    Ring,
    Sample,
    Throttled,
    decode,
    follow,
    records,
)

U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
NANOSECONDS = st.integers(0, 2**52)
counting = pytest.mark.skipif(available().software is not None, reason="nothing can be counted")


def record(kind: int, body: bytes, misc: int = 0) -> bytes:
    return struct.pack("=IHH", kind, misc, 8 + len(body)) + body


# parsing hand-built bytes


def sample(ip, pid, tid, time, address, cpu, misc) -> bytes:
    # in the order of linux/perf_event.h: ip, pid tid, time, addr, cpu res
    return record(SAMPLE, struct.pack("=QIIQQII", ip, pid, tid, time, address, cpu, 0xAAAA), misc)


@given(U64, U32, U32, NANOSECONDS, U64, U32, U64, U16)
def test_a_sample(ip, pid, tid, nanoseconds, address, cpu, period, misc):
    data = sample(ip, pid, tid, nanoseconds, address, cpu, misc)
    assert decode(data, period) == Sample(ip, pid, tid, nanoseconds / 1e9, address, cpu, period)


@given(U64, U64, NANOSECONDS)
def test_what_is_told_beside_samples(number, count, nanoseconds):
    assert decode(record(LOST, struct.pack("=QQ", number, count))) == Lost(count)
    assert decode(record(LOST_SAMPLES, struct.pack("=Q", count))) == Lost(count)
    body = struct.pack("=QQQ", nanoseconds, number, number)
    assert decode(record(THROTTLE, body)) == Throttled(nanoseconds / 1e9, True)
    assert decode(record(UNTHROTTLE, body)) == Throttled(nanoseconds / 1e9, False)


@given(U32.filter(lambda kind: kind not in (2, 5, 6, 9, 13)), st.binary(max_size=64))
def test_unknown_types_are_stepped_over(kind, body):
    assert decode(record(kind, body)) == Other(kind, 8 + len(body))


@pytest.mark.parametrize("kind", [LOST, LOST_SAMPLES, THROTTLE, SAMPLE])
def test_a_record_too_short_for_its_type(kind):
    with pytest.raises(DltuneError, match=f"type {kind} is truncated at 12 bytes"):
        decode(record(kind, b"abcd"))


# records in multiples of 8 bytes, as the kernel writes them; their number is their content
SIZES = st.lists(st.integers(0, 6), max_size=200)


@given(SIZES, st.integers(0, 2**40), st.integers(6, 9), st.randoms(use_true_random=False))
def test_records_come_out_as_they_went_in_wherever_the_ring_wraps(sizes, start, power, random):
    """A writer beside a reader that catches up now and then; the oracle is a list."""
    ring = bytearray(os.urandom(2**power))
    written, got = [], []
    head = tail = start * 8
    for number, size in enumerate(sizes):
        data = record(number + 100, struct.pack("=Q", number) * size)
        if head + len(data) - tail > len(ring) or random.random() < 0.2:
            got += records(memoryview(ring), tail, head)
            tail = head
        for offset, byte in enumerate(data):
            ring[(head + offset) % len(ring)] = byte
        head += len(data)
        written.append(data)
    got += records(memoryview(ring), tail, head)
    assert got == written


@given(st.binary(min_size=64, max_size=64), st.integers(0, 8), st.integers(0, 8))
def test_any_bytes_are_records_or_an_error(ring, a, b):
    tail, head = 8 * min(a, b), 8 * max(a, b)
    found = []
    try:
        found.extend(records(memoryview(ring), tail, head))
    except DltuneError:
        assert sum(map(len, found)) < head - tail
    else:
        assert sum(map(len, found)) == head - tail


def test_a_record_without_a_size_does_not_hang():
    with pytest.raises(DltuneError, match="damaged 16 bytes before its head"):
        list(records(memoryview(bytearray(64)), 0, 16))


# real samples


@counting
def test_each_page_fault_with_its_address():
    pages = 300
    before = time.clock_gettime(time.CLOCK_MONOTONIC)
    with untouched(pages) as memory, Ring(parse("page-faults")) as ring:
        ring.enable()
        touch(memory, pages)
        ring.disable()
        found = ring.drain()
        counted = ring.counted()
        assert ring.drain() == []
    after = time.clock_gettime(time.CLOCK_MONOTONIC)
    assert all(isinstance(r, Sample) for r in found)
    assert len(found) == counted
    inside = [r for r in found if memory <= r.address < memory + pages * mmap.PAGESIZE]
    assert sorted(r.address // mmap.PAGESIZE for r in inside) == [
        memory // mmap.PAGESIZE + page for page in range(pages)
    ]
    assert {(r.pid, r.tid, r.period) for r in found} == {
        (os.getpid(), threading.get_native_id(), 1)
    }
    assert before <= found[0].time <= found[-1].time <= after
    assert all(r.ip and r.cpu < (os.cpu_count() or 1) * 64 for r in inside)


@counting
def test_a_reader_that_keeps_up_loses_nothing_however_often_the_ring_wraps():
    pages, part = 3000, 50
    with untouched(pages) as memory, Ring(parse("page-faults"), pages=1) as ring:
        addresses = set()
        for first in range(0, pages, part):
            ring.enable()
            touch(memory + first * mmap.PAGESIZE, part)
            ring.disable()
            for r in ring.drain():
                assert isinstance(r, Sample)
                addresses.add(r.address // mmap.PAGESIZE)
    assert addresses >= {memory // mmap.PAGESIZE + page for page in range(pages)}


@counting
def test_what_a_slow_reader_loses_is_told():
    pages = 1000
    with untouched(pages) as memory, Ring(parse("page-faults"), pages=1) as ring:
        ring.enable()
        touch(memory, pages // 2)
        found = ring.drain()
        touch(memory + pages // 2 * mmap.PAGESIZE, 10)
        ring.disable()  # before the last drain, which may fault itself
        found += ring.drain()
        counted = ring.counted()
    kinds = collections.Counter(type(r) for r in found)
    lost = sum(r.count for r in found if isinstance(r, Lost))
    assert kinds[Lost] == 1
    assert kinds[Sample] + lost == counted


@counting
def test_a_period_thins_samples_out():
    pages = 1000
    with untouched(pages) as memory, Ring(parse("page-faults"), period=100) as ring:
        ring.enable()
        touch(memory, pages)
        ring.disable()
        found = ring.drain()
    assert 10 <= len(found) <= 12
    assert {r.period for r in found if isinstance(r, Sample)} == {100}


@counting
def test_all_threads_of_a_process_those_to_come_too():
    pages = 200
    ready, go = threading.Event(), threading.Event()

    def old() -> None:
        ready.set()
        go.wait()
        touch(memory, pages)

    with untouched(2 * pages) as memory:
        before = threading.Thread(target=old)
        before.start()
        ready.wait()
        rings = follow(parse("page-faults"), os.getpid())
        for ring in rings:
            ring.enable()
        go.set()
        second = memory + pages * mmap.PAGESIZE
        after = threading.Thread(target=touch, args=(second, pages))
        after.start()
        before.join()
        after.join()
        found = [r for ring in rings for r in ring.drain() if isinstance(r, Sample)]
        for ring in rings:
            ring.close()
    for first, thread in ((memory, before), (second, after)):
        inside = [r for r in found if first <= r.address < first + pages * mmap.PAGESIZE]
        assert len(inside) == pages
        assert {r.tid for r in inside} == {thread.native_id}


def test_a_process_that_has_ended():
    with pytest.raises(UsageError, match="there is no process 999999999"):
        follow(parse("page-faults"), 999999999)


@counting
def test_more_memory_than_may_be_locked(monkeypatch):
    def refuse(*arguments):
        raise PermissionError(1, "Operation not permitted")

    before = open_events()
    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(UsageError, match="bytes of locked memory") as raised:
        Ring(parse("page-faults"), pages=256)
    assert "perf_event_mlock_kb" in raised.value.remedy
    assert open_events() == before
