"""A thread's times off the CPU, against what it did."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time

import pytest

from dltune.base.errors import UsageError
from dltune.system.perf.ring import Switches

SOURCE = r"""
#include <time.h>
#include <unistd.h>
int main() {
  if (write(1, "ready\n", 6) != 6) return 1;
  for (;;) {
    struct timespec asked = {0, 3000000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &asked, 0);
  }
}
"""


@pytest.fixture
def sleeper(tmp_path):
    source, program = tmp_path / "sleeper.c", tmp_path / "sleeper"
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-O2", "-o", str(program), str(source)], check=True)
    with subprocess.Popen([str(program)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"  # it has begun, and does nothing but sleep
        yield process
        process.kill()


def test_sleeps_tell_how_long_they_were_to_be(sleeper):
    try:
        switches = Switches(sleeper.pid)
    except UsageError as error:
        pytest.skip(str(error))
    with switches:
        began = time.monotonic()
        switches.start()
        found, sleeps, whole = [], [], []
        # one that was held up after it had asked leaves late: it is whole for the kernel alone
        while len(whole) < 10 and time.monotonic() < began + 120:
            time.sleep(0.05)
            found += switches.drain()
            sleeps = [off for off in found if off.timespec is not None and not off.preempted]
            whole = [off for off in sleeps if off.back - off.left >= 3e-3 - 1e-4]
        switches.stop()
    ended = time.monotonic()
    assert len(whole) >= 10
    assert {off.timespec for off in sleeps} == {3e-3}
    assert all(began <= off.left < off.back <= ended for off in sleeps)
    for one, other in itertools.pairwise(sleeps):
        assert other.back - one.back >= 3e-3 - 1e-6
    for one, other in itertools.pairwise(found):
        assert one.back <= other.left


def test_what_is_not_recorded_is_counted(sleeper, monkeypatch):
    """A ring that is too small for what nobody takes."""
    monkeypatch.setattr("dltune.system.perf.ring._PAGES", 2)
    try:
        switches = Switches(sleeper.pid)
    except UsageError as error:
        pytest.skip(str(error))
    with switches:
        switches.start()
        for pause in (0.2, 0.5, 1, 2, 5, 10, 20, 40):  # the slower the machine, the later
            time.sleep(pause)
            switches.drain()
            if switches.lost:
                break
    assert switches.lost


def test_no_such_thread():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(UsageError):
        Switches(gone.pid)
