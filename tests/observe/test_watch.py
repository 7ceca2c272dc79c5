"""A job watched from outside."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from dltune.errors import UsageError
from dltune.job import messages
from dltune.job.record import Record
from dltune.observe.watch import JobWatch, period

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


def test_how_often_the_main_graph_ran_while_it_was_watched():
    record = Record(messages.Plugin(7, "2.21.0", "git", "3.11"))
    for number, name in enumerate(("prepare", "train")):
        record.add(messages.Graph(number, name, name, "CPU:0", False, []))
    record.runs.update({0: 9, 1: 40})
    record.seconds.update({0: 0.1, 1: 2.0})
    idle = messages.Admission(0, 0, 0.0, [])
    first, last = (
        messages.Report("asked", 0.0, 0, 0.0, 0.0, idle, at=at * 10**9, runs=runs)
        for at, runs in ((5, (9, 40)), (15, (9, 4040)))
    )
    record.report = last
    assert period(record, first) == pytest.approx(10 / 4000)
    assert period(record, None) is None
    record.report = first
    assert period(record, first) is None
