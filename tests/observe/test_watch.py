"""A job watched from outside."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from dltune.errors import UsageError
from dltune.observe.watch import JobWatch

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
