"""A process's threads and their counts, as they know them themselves."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading

import pytest
from known_work import sleep_off_the_cpu

from dltune.system.proc import stat
from dltune.system.proc.stat import counts, switches, thread_name, threads

THREADS = """
import sys, threading
ends = threading.Event()
for _ in range(3):
    threading.Thread(target=ends.wait).start()
print("ready", flush=True)
sys.stdin.read()
ends.set()
"""


def test_those_of_a_process_that_has_some(started):
    job = started(THREADS, stdin=subprocess.PIPE)
    found = threads(job.pid)
    assert len(found) == 4
    assert job.pid in found
    assert all(counts(job.pid, tid) for tid in found)
    job.stdin.close()
    job.wait()
    assert not threads(job.pid)
    assert not any(counts(job.pid, tid) or switches(job.pid, tid) for tid in found)
    assert thread_name(job.pid, job.pid) is None


def test_those_that_began_after_one_that_ends_meanwhile():
    for _ in range(400):
        go, end = threading.Event(), threading.Event()
        *ending, living = [threading.Thread(target=event.wait) for event in (*[go] * 20, end)]
        for thread in (*ending, living):
            thread.start()
        go.set()
        try:
            assert all(living.native_id in threads(os.getpid()) for _ in range(20))
        finally:
            end.set()
            for thread in (*ending, living):
                thread.join()


def test_counts_are_the_kernels():
    def switched() -> int:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw

    sleep_off_the_cpu(20)
    before = switched()
    found = counts(os.getpid(), threading.get_native_id())
    assert found is not None
    assert 0 < before <= found.voluntary <= switched()
    assert found.stat.minor > 0
    assert found.queued is not None
    assert found.queued >= 0
    assert 0 < found.cpu <= resource.getrusage(resource.RUSAGE_SELF).ru_utime + 60


def test_cpus_of_a_thread_that_has_few():
    allowed = os.sched_getaffinity(0)
    chosen = min(allowed)
    os.sched_setaffinity(0, {chosen})
    try:
        found = counts(os.getpid(), threading.get_native_id())
    finally:
        os.sched_setaffinity(0, allowed)
    assert found is not None
    assert found.cpus == str(chosen)


def test_one_that_has_not_run_is_not_read_again(monkeypatch: pytest.MonkeyPatch):
    """Nobody can be sure of a thread that it does not run: what the kernel tells of it stands
    still, as it does for one that sleeps."""
    thread = threading.get_native_id()
    asked: list[str] = []
    told: dict[str, bytes | None] = {}

    def read(path: str) -> bytes | None:
        asked.append(path)
        if path not in told:
            told[path] = real(path)
        return told[path]

    real = stat.read
    monkeypatch.setattr(stat, "read", read)
    first = counts(os.getpid(), thread)
    assert first is not None
    asked.clear()
    assert counts(os.getpid(), thread, first) is first
    assert asked == [f"/proc/{os.getpid()}/task/{thread}/schedstat"]
    told.clear()
    sleep_off_the_cpu(1)
    assert counts(os.getpid(), thread, first) != first


def test_growth():
    thread = threading.get_native_id()
    first = counts(os.getpid(), thread)
    sleep_off_the_cpu(10)
    last = counts(os.getpid(), thread)
    assert first is not None
    assert last is not None
    used = last.since(first)
    assert used.voluntary + used.involuntary >= 10
    assert 0 < used.voluntary == last.voluntary - first.voluntary
    assert 0 < used.cpu == last.cpu - first.cpu
    assert first.since(last).voluntary == 0
    assert first.since(last).cpu == 0.0


def test_the_name_of_a_thread():
    script = "open('/proc/self/comm', 'w').write('a) name'); print('ready', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as job:
        assert job.stdout is not None
        job.stdout.readline()
        assert thread_name(job.pid, job.pid) == "a) name"
        found = counts(job.pid, job.pid)
        assert found is not None
        assert found.stat.name == "a) name"
        job.kill()
