"""A job watched from outside."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from dltune.base.errors import UsageError
from dltune.watch import job_watch
from dltune.watch.files.io_watch import Watch
from dltune.watch.job_watch import JobWatch

GROWS = """
import time
kept = []
while True:
    kept.append(bytearray(b"x" * (1 << 20)))
    time.sleep(0.05)
"""


def test_a_process_that_grows(monkeypatch):
    """What is weighed grows by 20 MiB a second of the clock, beside what the process has: on a busy
    machine that grows by fits and starts."""
    sizes: list[int] = []
    began = time.monotonic()
    anonymous = job_watch.process.anonymous

    def weighed(pid: int) -> int:
        sizes.append(anonymous(pid))
        return int((time.monotonic() - began) * (20 << 20))

    monkeypatch.setattr(job_watch.process, "anonymous", weighed)
    with subprocess.Popen([sys.executable, "-c", GROWS]) as job:
        try:
            watch = JobWatch(job.pid, job.pid, {})
            while len(sizes) < 16 and watch.watching:
                time.sleep(0.1)
            seen = watch.end("a job")
        finally:
            job.kill()
    assert sizes[-1] > sizes[0] > 0
    observation = seen.observation
    assert observation is not None
    main = observation.main
    assert main is not None
    assert main.pid == job.pid
    assert main.growth is not None
    assert main.growth > 1 << 20
    assert main.intra is None
    assert observation.host.others >= 0
    assert seen.io is not None
    assert not watch.watching


def test_there_is_no_such_process():
    with pytest.raises(UsageError, match="there is no process"):
        JobWatch(2**22 + 1, 2**22 + 1, {})


STARTS = """
import subprocess, sys
burns = "import time; ends = time.monotonic() + 0.3\\nwhile time.monotonic() < ends: pass"
while True:
    subprocess.run([sys.executable, "-c", burns])
"""


def test_what_lives_for_a_moment_used_no_more_than_it_could(monkeypatch):
    """As far as that is known: what it used is read a little after the time of the look."""
    looked: list[float] = []
    known: set[int] = set()
    look = Watch._look_at_process

    def timed(watch: Watch, pid: int, started: int) -> None:
        began = time.monotonic()
        look(watch, pid, started)
        looked.append(time.monotonic() - began)
        known.update(pid for pid, _ in watch.processes)

    monkeypatch.setattr(Watch, "_look_at_process", timed)
    with subprocess.Popen([sys.executable, "-c", STARTS]) as job:
        try:
            watch = JobWatch(job.pid, job.pid, {})
            until = time.monotonic() + 240
            while len(known) < 5:
                assert time.monotonic() < until
                time.sleep(0.1)
            seen = watch.end("a job")
        finally:
            job.kill()
    assert seen.observation is not None
    young = [one for one in seen.observation.processes if one.pid != job.pid]
    assert young
    # counts are in hundredths of a second
    assert max(one.cpu * one.seconds - one.seconds for one in young) < 0.05 + max(looked)
