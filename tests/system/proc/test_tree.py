"""The processes of a job, on real ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from dltune.base.errors import UsageError
from dltune.system.proc import stat
from dltune.system.proc.stat import Tree, descendants, session

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


def test_members_of_a_job() -> None:
    script = "import subprocess, sys; subprocess.run(['sleep', '60'], start_new_session=True)"
    job = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    found: set[int] = set()
    until = time.monotonic() + 120
    try:
        # the child has a session of its own, a moment after it has begun
        while len(found := descendants(job.pid)) < 2 or found != {
            one.session for one in session(job.pid).values()
        }:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert session(job.pid).keys() == found
        assert job.pid in found
        assert os.getpid() not in found
    finally:
        for pid in found - {job.pid}:
            os.kill(pid, 9)
        job.wait()


def test_processes_that_end_while_they_are_read():
    script = (
        "import os, select\nwhile not select.select([0], [], [], 0)[0]:\n"
        "    os.fork() or os._exit(0)\n    os.wait()"
    )
    churn = subprocess.Popen([sys.executable, "-S", "-c", script], stdin=subprocess.PIPE)
    watched = Tree(churn.pid)
    for _ in range(30):
        assert os.getpid() in stat.processes()
        members = watched.refresh()
        assert members[0] == churn.pid
        assert churn.pid in descendants(churn.pid)
    churn.communicate()
    assert churn.returncode == 0
    assert watched.refresh() == []
    assert descendants(churn.pid) == {churn.pid}
    assert session(churn.pid) == {}
