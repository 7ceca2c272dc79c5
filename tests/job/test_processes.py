"""The process tree and its counts, on real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from known_work import sleep_off_the_cpu

from dltune.errors import UsageError
from dltune.job import processes
from dltune.job.processes import Tree, parse_stat

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("ready", flush=True)
sys.stdin.read()
"""


def until(condition: Callable[[], bool], patience: float = 60.0) -> None:
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_process_and_its_children(started):
    parent = started(PARENT, stdin=subprocess.PIPE)
    tree = Tree(parent.pid)
    until(lambda: len(tree.refresh()) == 2)
    assert tree.refresh()[0] == parent.pid
    assert os.getpid() not in tree.refresh()


def test_a_child_stays_when_its_parent_has_ended(started):
    parent = started(PARENT, stdin=subprocess.PIPE)
    tree = Tree(parent.pid)
    until(lambda: len(tree.refresh()) == 2)
    child = tree.refresh()[1]
    parent.kill()
    parent.wait()
    assert tree.refresh() == [child]
    os.kill(child, 9)
    until(lambda: tree.refresh() == [])


def test_no_such_process():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(UsageError, match=f"there is no process {gone.pid}"):
        Tree(gone.pid)


def test_names_with_parentheses():
    stat = parse_stat(b"7 (a) (b c) S 1 7 7 0 -1 0 11 0 22 0 300 400 0 0 20 0 1 0 99 0 0\n")
    assert (stat.name, stat.state, stat.parent, stat.minor, stat.major) == (
        "a) (b c",
        "S",
        1,
        11,
        22,
    )
    assert stat.started == 99
    assert stat.user == pytest.approx(300 * processes.TICK)


def test_counts_of_a_thread_are_the_kernels():
    import resource

    def switches() -> int:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw

    sleep_off_the_cpu(20)
    before = switches()
    found = processes.counts(os.getpid(), threading.get_native_id())
    assert found is not None
    assert 0 < before <= found.voluntary <= switches()
    assert found.stat.minor > 0
    assert found.queued is not None
    assert found.queued >= 0


def test_what_has_ended_has_no_counts():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert processes.counts(gone.pid, gone.pid) is None
    assert processes.reads(gone.pid) is None
    assert processes.threads(gone.pid) == []
    assert processes.rss_file(gone.pid) is None
    assert not processes.may_look_into(gone.pid)


def test_bytes_that_read_calls_copied(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000))
    before = processes.reads(os.getpid())
    path.read_bytes()
    after = processes.reads(os.getpid())
    assert before is not None
    assert after is not None
    assert after.copied - before.copied >= 100_000
    assert after.calls > before.calls
