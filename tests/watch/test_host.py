"""What goes on beside a job."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from dltune.system import kernel_files
from dltune.system.proc import stat
from dltune.watch import host

BUSY = "while True: pass"


@pytest.mark.parametrize(("ran", "least", "most"), [(0.0, 0.0, 0.0), (0.9, 0.1, 0.9)])
def test_what_others_have_of_the_jobs_cpus_alone(monkeypatch, ran, least, most):
    """`ran`: seconds that anything ran on the job's only CPU, beside a process that computes, in
    what is a second by the watch's clock."""
    mine = min(os.sched_getaffinity(0))
    ticks, seconds = itertools.count(), itertools.count()
    monkeypatch.setattr(host, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    monkeypatch.setattr(
        host, "busy", lambda: {mine: ran * (now := next(ticks)), mine + 1: 9.0 * now}
    )
    monkeypatch.setattr(host, "MOST_NAMED", 1000)
    job = subprocess.Popen(["sleep", "600"])
    busy = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        watch = host.HostWatch(job.pid)
        until = time.monotonic() + 240
        while not (now := stat.of_process(busy.pid)) or watch._used(busy.pid, now) < 0.3:
            assert time.monotonic() < until
            time.sleep(0.1)
        found = watch.figures({job.pid}, {os.getpid()}, {mine})
        assert least <= found.others <= most
        assert busy.pid in {one.pid for one in found.neighbours}
    finally:
        for process in (job, busy):
            process.kill()
            process.wait()


@pytest.mark.parametrize("seen", [True, False])
def test_who_cannot_be_seen_has_what_the_job_has_not(monkeypatch, seen):
    """As in a container, beside others: half of the job's CPU goes to nobody who is there."""
    mine = min(os.sched_getaffinity(0))
    ran = {mine: 0.0}
    monkeypatch.setattr(host, "busy", ran.copy)
    monkeypatch.setattr(host, "processes", dict)
    monkeypatch.setattr(host, "_sees_all", lambda: seen)
    began = time.monotonic()
    watch = host.HostWatch(os.getpid())
    time.sleep(1.0)
    ran[mine] = 0.5
    others = watch.figures({os.getpid()}, set(), {mine}).others
    if seen:
        assert others == 0.0
    else:
        assert 0.5 / (time.monotonic() - began) <= others <= 0.5


def test_children_of_the_job_that_have_ended_are_its(monkeypatch):
    mine = min(os.sched_getaffinity(0))
    monkeypatch.setattr(host, "_sees_all", lambda: False)
    burns = "import time\nwhile time.process_time() < 0.5: pass"
    script = (
        "import subprocess, sys\nprint('ready', flush=True)\ninput()\n"
        f"subprocess.run([sys.executable, '-c', {burns!r}])\ninput()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        assert job.stdout.readline() == b"ready\n"
        watch = host.HostWatch(job.pid)
        job.stdin.write(b"\n")  # only now, or the child might be over before the watch begins
        job.stdin.flush()
        until = time.monotonic() + 240
        while (now := host.processes()[job.pid]).children_cpu < 0.4:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert watch._used(job.pid, now, children=True) >= 0.4
        assert watch._used(job.pid, now) < 0.4
        assert watch.figures({job.pid}, set(), {mine}).others >= 0.0
        job.communicate(b"\n")


def test_cpus_are_those_that_could_be_had():
    """Of a process that is kept to one of several."""
    mask = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(mask)})
    try:
        found = host.HostWatch(os.getpid()).figures(set(), set(), set())
    finally:
        os.sched_setaffinity(0, mask)
    allowed = kernel_files.limits().cpus
    assert set(found.cpus) == ({min(mask)} if allowed is None else allowed | {min(mask)})
