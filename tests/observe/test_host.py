"""What goes on beside a job."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time

import pytest

from dltune.observe import host

BUSY = "while True: pass"


@pytest.mark.parametrize(("ran", "least", "most"), [(0.0, 0.0, 0.0), (0.9, 0.1, 0.9)])
def test_what_others_have_of_the_jobs_cpus_alone(monkeypatch, ran, least, most):
    """`ran`: seconds that anything ran on the job's only CPU, beside a process that computes."""
    mine = min(os.sched_getaffinity(0))
    ticks = itertools.count()
    monkeypatch.setattr(
        host, "busy", lambda: {mine: ran * (now := next(ticks)), mine + 1: 9.0 * now}
    )
    monkeypatch.setattr(host, "MOST_NAMED", 1000)
    job = subprocess.Popen(["sleep", "60"])
    busy = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        watch = host.HostWatch(job.pid)
        time.sleep(1.0)
        found = watch.figures({job.pid}, {os.getpid()}, {mine})
        assert least <= found.others <= most
        assert busy.pid in {one.pid for one in found.neighbours}
    finally:
        for process in (job, busy):
            process.kill()
            process.wait()
