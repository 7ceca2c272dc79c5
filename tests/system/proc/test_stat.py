"""What the kernel counts of a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.system.proc import stat
from dltune.system.proc.stat import Stat, parse

counted = st.integers(0, 2**63)


@given(
    st.binary(max_size=15).filter(lambda name: b"\0" not in name),
    st.sampled_from("RSDZTtXI"),
    st.lists(counted, min_size=49, max_size=49),
)
def test_any_line_of_the_kernels(name: bytes, state: str, fields: list[int]) -> None:
    """The name may hold parentheses, spaces and line ends."""
    line = b"7 (%s) %s %s\n" % (name, state.encode(), " ".join(map(str, fields)).encode())
    found = parse(line)
    assert found.name == name.decode(errors="replace")
    assert found.state == state
    # numbered as proc(5) does, from the parent's, the fourth, on
    of = dict(enumerate(fields, 4))
    assert (found.parent, found.session, found.started) == (of[4], of[6], of[22])
    assert (found.minor, found.major, found.children_faults) == (of[10], of[12], of[11] + of[13])
    assert (found.user, found.kernel) == (of[14] * stat.TICK, of[15] * stat.TICK)
    assert found.children_cpu == pytest.approx((of[16] + of[17]) * stat.TICK)
    assert found.exit_code == of[52]


def test_a_process_as_it_knows_itself() -> None:
    found = stat.of_process(os.getpid())
    assert found is not None
    assert (found.parent, found.session) == (os.getppid(), os.getsid(0))
    assert found.state == "R"
    assert not found.ended
    assert 0 < found.started < stat.now()
    used = os.times()
    assert found.user == pytest.approx(used.user, abs=1.0)
    assert found.children_cpu <= used.children_user + used.children_system + 2 * stat.TICK


def test_a_zombie_tells_how_it_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    found = stat.of_process(child.pid)
    assert found is not None
    assert found.ended
    assert os.waitstatus_to_exitcode(found.exit_code) == 7
    child.wait()
    assert stat.of_process(child.pid) is None


def test_the_state_of_a_thread(started) -> None:
    job = started("import time; print('ready', flush=True); time.sleep(600)")
    until = time.monotonic() + 120
    while stat.state(job.pid, job.pid) != "S":
        assert time.monotonic() < until
        time.sleep(0.01)
    job.send_signal(signal.SIGSTOP)
    while stat.state(job.pid, job.pid) != "T":
        assert time.monotonic() < until
        time.sleep(0.01)
    job.kill()
    job.wait()
    assert stat.state(job.pid, job.pid) is None
    assert stat.state(os.getpid(), threading.get_native_id()) == "R"


def test_growth() -> None:
    first = Stat("a", "S", 1, 1, 10, 2, 1.0, 0.5, 3.0, 7, 99, 0)
    last = first._replace(state="R", minor=15, major=2, user=1.5, kernel=0.25)
    used = last.since(first)
    assert (used.minor, used.major, used.user, used.kernel) == (5, 0, 0.5, 0.0)
    assert (used.name, used.state, used.started) == ("a", "R", 99)
