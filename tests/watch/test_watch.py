"""A job watched from outside."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from dltune.base.errors import UsageError
from dltune.watch.job_watch import JobWatch

GROWS = """
import time
kept = []
while True:
    kept.append(bytearray(b"x" * (1 << 20)))
    time.sleep(0.05)
"""


def test_a_process_that_grows():
    with subprocess.Popen([sys.executable, "-c", GROWS]) as job:
        try:
            time.sleep(0.3)
            watch = JobWatch(job.pid, job.pid, {})
            while watch.seconds < 16 and watch.watching:
                time.sleep(0.1)
            seen = watch.end("a job")
        finally:
            job.kill()
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
import subprocess, sys, time
burns = "import time; ends = time.monotonic() + 0.3\\nwhile time.monotonic() < ends: pass"
time.sleep(1.0)
for _ in range(8):
    subprocess.run([sys.executable, "-c", burns])
time.sleep(60)
"""


def test_what_lives_for_a_moment_used_no_more_than_it_could():
    with subprocess.Popen([sys.executable, "-c", STARTS]) as job:
        try:
            watch = JobWatch(job.pid, job.pid, {})
            time.sleep(5.0)
            seen = watch.end("a job")
        finally:
            job.kill()
    assert seen.observation is not None
    young = [one for one in seen.observation.processes if one.pid != job.pid]
    assert young
    # counts are in hundredths of a second
    assert max(one.cpu * one.seconds - one.seconds for one in young) < 0.05
