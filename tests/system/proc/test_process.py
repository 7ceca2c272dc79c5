"""Who a process is, and what it has read."""

from __future__ import annotations

import getpass
import mmap
import os
import subprocess
import sys
import threading
import time

import pytest

from dltune.system.proc import process


@pytest.fixture
def gone() -> int:
    """The number of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_what_has_ended_is_nothing(gone):
    assert not process.exists(gone)
    assert process.command(gone) == ""
    assert process.owner(gone) == "?"
    assert process.cpu_seconds(gone) is None
    assert process.reads(gone) is None
    assert not process.may_look_into(gone)
    assert process.resident_files(gone) is None
    assert process.address_space(gone) == process.resident(gone) == process.anonymous(gone) == 0
    with pytest.raises(OSError, match=str(gone)):
        process.environment(gone)


def test_who_it_is(started):
    job = started(
        "print('ready', flush=True); input()",
        "an argument",
        stdin=subprocess.PIPE,
        env={"EMPTY": "", "EQUALS": "a=b"},
    )
    assert process.exists(job.pid)
    assert process.command(job.pid).endswith("an argument")
    assert process.owner(job.pid) == getpass.getuser()
    assert process.may_look_into(job.pid)
    found = process.environment(job.pid)
    assert (found["EMPTY"], found["EQUALS"]) == ("", "a=b")


def test_cpu_time_of_threads_that_have_ended_counts():
    before = process.cpu_seconds(os.getpid())

    def burn() -> None:
        end = time.thread_time() + 0.2
        while time.thread_time() < end:
            pass

    thread = threading.Thread(target=burn)
    thread.start()
    thread.join()
    after = process.cpu_seconds(os.getpid())
    assert before is not None
    assert after is not None
    assert after - before >= 0.2
    assert after <= time.process_time()


def test_bytes_that_read_calls_copied(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000))
    thread = threading.get_native_id()
    before = process.reads(os.getpid()), process.reads(os.getpid(), thread)
    path.read_bytes()
    after = process.reads(os.getpid()), process.reads(os.getpid(), thread)
    for first, last in zip(before, after, strict=True):
        assert first is not None
        assert last is not None
        assert last.since(first).copied >= 100_000
        assert last.calls > first.calls


def test_memory_that_is_there_and_that_is_not():
    """Mapped anew: what an allocator has kept of earlier tests is resident already. Far more than
    what it may give back meanwhile."""
    before = process.anonymous(os.getpid())
    held = mmap.mmap(-1, 128 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for _ in range(128):
        held.write(b"x" * (1 << 20))
    assert process.anonymous(os.getpid()) > before + len(held) - (32 << 20)
    assert process.address_space(os.getpid()) > process.resident(os.getpid()) > len(held)
    files = process.resident_files(os.getpid())
    assert files is not None
    assert 0 < files < process.resident(os.getpid())
