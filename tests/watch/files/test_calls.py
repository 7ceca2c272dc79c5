"""Which sleeping threads wait for storage."""

from __future__ import annotations

import os
import platform
import threading
import time

import pytest

from dltune.watch.files.accesses import Wait, parse_call, waiting

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="call numbers of x86_64")


def test_a_read_at_an_offset():
    told = b"17 0x5 0x7f0000000000 0x20000 0x100000 0x0 0x0 0x7ffc 0x7f14\n"
    assert parse_call(told, "D", b"folio_wait_bit_common") == Wait("call", 5, 0x20000, 0x100000)


def test_a_read_from_the_descriptors_position():
    told = b"0 0x3 0x7f0000000000 0x1000 0x0 0x0 0x0 0x7ffc 0x7f14\n"
    assert parse_call(told, "S", b"") == Wait("call", 3, 0x1000, None)


def test_a_vector_of_sizes_is_not_seen():
    told = b"295 0x4 0x7f0000000000 0x2 0x8000 0x0 0x0 0x7ffc 0x7f14\n"
    assert parse_call(told, "D", b"") == Wait("call", 4, None, 0x8000)


def test_a_page_fault_and_a_lock():
    assert parse_call(b"-1 0x7ffc 0x7f14\n", "D", b"folio_wait_bit_common") == Wait("fault")
    assert parse_call(b"-1 0x7ffc 0x7f14\n", "D", b"rwsem_down_read_slowpath") is None
    assert parse_call(b"-1 0x7ffc 0x7f14\n", "S", b"request_wait_answer") == Wait("fault")


def test_who_runs_or_sleeps_for_something_else_does_not_wait_for_storage():
    assert parse_call(b"running\n", "R", b"") is None
    assert parse_call(b"202 0x1 0x2 0x3 0x4 0x5 0x6 0x7 0x8\n", "S", b"futex_wait") is None
    assert parse_call(b"75 0x1 0x2 0x3 0x4 0x5 0x6 0x7 0x8\n", "D", b"jbd2_log_wait") is None
    assert parse_call(b"", "S", b"") is None


def test_a_call_that_ended_meanwhile():
    assert parse_call(b"running\n", "D", b"") == Wait("unknown")


def test_a_thread_that_reads_a_pipe_is_seen_with_its_descriptor():
    reading, writing = os.pipe()
    thread = threading.Thread(target=os.read, args=(reading, 77))
    thread.start()
    assert thread.native_id is not None
    until = time.monotonic() + 120
    while waiting(os.getpid(), thread.native_id, may_look=True) != Wait("call", reading, 77, None):
        assert time.monotonic() < until  # a thread that begins may wait for its own pages first
    assert waiting(os.getpid(), thread.native_id, may_look=False) is None
    os.write(writing, b"x")
    thread.join()
    assert waiting(os.getpid(), thread.native_id, may_look=True) is None
    os.close(reading)
    os.close(writing)
