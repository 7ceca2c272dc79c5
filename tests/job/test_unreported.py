"""A process that has TensorFlow loaded and never reported in."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from dltune.job import failures
from dltune.job.failures import unreported

FORK = "import os, time; os.fork()"
OTHER = ["python", "-Ic", "import time; time.sleep(600)"]
EXEC = f"import os, time; os.fork() or os.execv({sys.executable!r}, {OTHER})"


@pytest.fixture(params=[FORK])
def tree(request, monkeypatch):
    """A session of two sleeping processes, parent and child, and a fake of who has what."""
    code = f"{request.param}; time.sleep(600)"
    parent = subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)
    until = time.monotonic() + 120
    while not (children := _children(parent.pid)):
        assert time.monotonic() < until
        time.sleep(0.02)
    loaded: set[int] = set()
    monkeypatch.setattr(failures, "loaded", lambda pid: "pytorch" if pid in loaded else None)
    yield parent.pid, children[0], loaded
    os.killpg(parent.pid, 9)
    parent.wait()


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def test_nothing_is_loaded(tree):
    assert unreported(tree[0], set()) is None


def test_who_has_it_and_did_not_report_is_found(tree):
    parent, child, loaded = tree
    loaded.add(child)
    assert unreported(parent, set()) == child


@pytest.mark.parametrize("tree", [EXEC], indirect=True)
def test_a_python_of_its_own_is_found(tree):
    parent, child, loaded = tree
    loaded.add(child)
    until = time.monotonic() + 120
    while unreported(parent, {parent}) != child:  # before it has become another program
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_fork_that_loads_it_has_the_bootstrap_of_its_parent(tree):
    parent, child, loaded = tree
    loaded.add(child)
    assert unreported(parent, {parent}) is None


def test_who_reported_is_fine(tree):
    parent, _, loaded = tree
    loaded.add(parent)
    assert unreported(parent, {parent}) is None


def test_a_fork_of_one_that_reported_is_fine(tree):
    parent, child, loaded = tree
    loaded.update((parent, child))
    assert unreported(parent, {parent}) is None


def test_a_helper_of_another_framework_is_no_matter(tree):
    parent, child, loaded = tree
    loaded.add(child)
    assert unreported(parent, set(), {"tensorflow"}) is None
    assert unreported(parent, set(), {"tensorflow", "pytorch"}) == child


def test_other_sessions_are_of_no_concern(tree):
    _, _, loaded = tree
    loaded.add(os.getpid())
    assert unreported(tree[0], set()) is None


def test_what_a_process_has_mapped_is_read(monkeypatch):
    monkeypatch.setattr(failures, "LIBRARIES", {"no such": "tensorflow", "libc.so": "pytorch"})
    assert failures.loaded(os.getpid()) == "pytorch"
    monkeypatch.setattr(failures, "LIBRARIES", {"no such": "tensorflow"})
    assert failures.loaded(os.getpid()) is None
