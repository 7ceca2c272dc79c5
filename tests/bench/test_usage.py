"""CPU time and context switches of a session, from a made-up /proc and from a real process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dltune.bench.usage import Reading, read

TICK = 1 / os.sysconf("SC_CLK_TCK")


def process(
    proc: Path, pid: int, session: int, ticks: list[int], threads: dict[int, tuple[int, int]]
) -> None:
    stat = f"{pid} (a) name) S 1 {pid} {session} 0 -1 0 0 0 0 0 {' '.join(map(str, ticks))} 20 0"
    (proc / str(pid)).mkdir(parents=True, exist_ok=True)
    (proc / str(pid) / "stat").write_text(stat)
    for thread, (voluntary, involuntary) in threads.items():
        task = proc / str(pid) / "task" / str(thread)
        task.mkdir(parents=True, exist_ok=True)
        (task / "status").write_text(
            f"Name:\tpython\nvoluntary_ctxt_switches:\t{voluntary}\n"
            f"nonvoluntary_ctxt_switches:\t{involuntary}\n"
        )


def test_all_processes_of_the_session_and_their_ended_children_count(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("")
    process(tmp_path, 10, 10, [100, 20, 3, 4], {10: (5, 1), 11: (7, 2)})
    process(tmp_path, 20, 10, [1, 2, 0, 0], {20: (1, 1)})
    process(tmp_path, 30, 99, [5000, 0, 0, 0], {30: (9, 9)})
    found = read(10, tmp_path)
    assert found.cpu == pytest.approx(130 * TICK)
    assert found.switches == {(10, 10): (5, 1), (10, 11): (7, 2), (20, 20): (1, 1)}


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


def test_page_faults_of_processes_and_their_ended_children(tmp_path: Path) -> None:
    stat = "10 (a) S 1 10 10 0 -1 0 100 20 3 4 0 0 0 0 20 0"
    (tmp_path / "10").mkdir()
    (tmp_path / "10" / "stat").write_text(stat)
    assert read(10, tmp_path).faults == 127
    before = Reading(0.0, {}, 27)
    assert read(10, tmp_path).since(before).faults == 100
