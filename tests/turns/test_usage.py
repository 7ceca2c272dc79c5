"""CPU time, context switches and page faults of a session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil

from dltune.system.proc import stat
from dltune.turns.barrier import Reading, read

TICK = stat.TICK


FAMILY = """
import os, threading
def burn():
    while os.times().user + os.times().system < 0.3:
        pass
if os.fork() == 0:
    burn()
    os._exit(0)
os.wait()  # what it used is the parent's from here on
threading.Thread(target=threading.Event().wait, daemon=True).start()
if os.fork() == 0:
    print("ready", flush=True)
    threading.Event().wait()
threading.Event().wait()
"""


def test_all_processes_of_the_session_and_their_ended_children_count(started) -> None:
    job = started(FAMILY, start_new_session=True)
    try:
        # counts only grow: those of the parent are read before the whole, and the CPU time after
        ended = stat.of_process(job.pid)
        found = read(job.pid)
        pids = members(found, job.pid)
        later = sum(sum(psutil.Process(pid).cpu_times()[:4]) for pid in pids)
        assert 0.3 - TICK <= found.cpu <= later + TICK
        parent, child = ({tid for at, tid in found.switches if at == pid} for pid in pids)
        assert (len(parent), len(child)) == (2, 1)
        # an interpreter that begins touches some thousand pages, and has forked twice
        assert ended is not None
        assert ended.children_faults > 0
        assert found.faults >= ended.minor + ended.major + ended.children_faults
    finally:
        os.killpg(job.pid, signal.SIGKILL)


def members(found: Reading, leader: int) -> list[int]:
    """The session's leader first: pids begin anew some time."""
    return sorted({pid for pid, _ in found.switches}, key=lambda pid: pid != leader)


def test_page_faults_between_two_readings() -> None:
    assert Reading(0.0, {}, 127).since(Reading(0.0, {}, 27)).faults == 100


def test_between_two_readings() -> None:
    before = Reading(1.0, {(1, 1): (10, 5), (1, 2): (100, 50), (1, 3): (7, 7)})
    after = Reading(3.5, {(1, 1): (15, 5), (1, 4): (3, 1), (1, 3): (2, 1)})
    used = after.since(before)
    assert used.cpu == 2.5
    # thread 2 has ended, 4 is new, and 3 is another thread with an old number
    assert (used.voluntary, used.involuntary) == (5 + 3 + 2, 0 + 1 + 1)


def test_a_real_process_that_sleeps_and_works() -> None:
    script = (
        "import resource, sys, time\n"
        "def left(): return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw\n"
        "for line in sys.stdin:\n"
        "    before = left()\n"
        "    end = time.process_time() + 0.2\n"
        "    while time.process_time() < end: pass\n"
        "    while left() < before + 15: time.sleep(0.001)\n"
        "    print('done', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        before = read(child.pid)
        child.stdin.write("go\n")
        child.stdin.flush()
        child.stdout.readline()
        used = read(child.pid).since(before)
        child.stdin.close()
    assert used.cpu >= 0.2 - 2 * TICK
    assert used.voluntary >= 15
