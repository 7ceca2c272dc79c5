"""Commands timed whole: what they use, and how they fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dltune.base.errors import UsageError
from dltune.gate import commands
from dltune.gate.checkouts import Side
from dltune.system.perf import events
from dltune.system.perf.events import SOFTWARE
from dltune.system.proc import stat
from dltune.system.proc.stat import Stat, session

PAGES = 5000
# a fault for each page: huge ones are not wanted
TOUCH = (
    f"import mmap\nx = mmap.mmap(-1, {PAGES} * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | "
    "mmap.MAP_ANONYMOUS)\nx.madvise(mmap.MADV_NOHUGEPAGE)\n"
    f"for i in range({PAGES}): x[i * mmap.PAGESIZE] = 1"
)


def side(*command: str, folder: Path = Path("/")) -> Side:
    return Side("head", "this checkout", command, folder)


def python(script: str) -> Side:
    return side(sys.executable, "-c", script)


def test_what_a_command_and_its_children_use() -> None:
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {TOUCH!r}])"
    used = commands.run(python(child), timeout=120)
    assert used["peak_bytes"] >= PAGES * 4096
    assert used["time"] > 0
    assert used["cpu_time"] > 0
    assert used["page_faults"] >= PAGES
    sleeps = (
        "import resource, time\n"
        "while resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw < 200: time.sleep(1e-3)"
    )
    slept = commands.run(python(sleeps), timeout=120)
    assert slept["context_switches"] >= 200


def test_it_runs_in_its_folder_with_its_environment(tmp_path: Path) -> None:
    checks = f"import os; assert os.getcwd() == {str(tmp_path)!r}; assert os.environ['A'] == 'b'"
    commands.run(
        Side("base", "base", [sys.executable, "-c", checks], tmp_path, {"A": "b"}), timeout=120
    )


def test_what_has_a_session_of_its_own_ends_with_a_command() -> None:
    """As torchrun's ranks."""
    script = "import subprocess; subprocess.run(['sleep', '600'], start_new_session=True)"
    job = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    until = time.monotonic() + 60
    ranks: dict[int, Stat] = {}
    while len(ranks) < 2 or {one.session for one in ranks.values()} != ranks.keys():
        assert time.monotonic() < until
        time.sleep(0.02)
        ranks = session(job.pid)
    commands._kill(job.pid)
    job.wait()
    while any((left := stat.of_process(pid)) and not left.ended for pid in ranks):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_failures_name_the_side_and_show_the_last_lines() -> None:
    failing = python("import sys; print('\\x1b[31m::error::owned ##[error]x'); sys.exit(3)")
    with pytest.raises(UsageError) as caught:
        commands.run(failing, timeout=120)
    told = str(caught.value)
    assert told.startswith("in this checkout: the command ended with exit code 3")
    assert "| \\x1b[31m::error::owned ## [error]x" in told
    with pytest.raises(UsageError, match="exit code 137"):
        commands.run(python("import os; os.kill(os.getpid(), 9)"), timeout=120)
    with pytest.raises(UsageError, match=r"took longer than 0\.2 s"):
        commands.run(python("import time; time.sleep(60)"), timeout=0.2)
    with pytest.raises(UsageError, match="cannot start /none"):
        commands.run(side("/none"), timeout=120)


def test_a_build_that_fails_is_told_with_its_side(tmp_path: Path) -> None:
    commands.build(side("x", folder=tmp_path), "echo done > built && test -f built", 120)
    assert (tmp_path / "built").exists()
    with pytest.raises(UsageError, match=r"the build failed in this checkout.*exit code 4"):
        commands.build(side("x"), "echo no; exit 4", 120)


def test_the_counter_counts_what_children_do() -> None:
    """A software event stands in for the processor's where there is no such unit."""
    counter = commands.InstructionCounter(events.TYPE_SOFTWARE, SOFTWARE["page-faults"])
    try:
        least, plain, used = (
            commands.run(one, timeout=120, counter=counter)
            for one in (side("/bin/true"), python("pass"), python(TOUCH))
        )
    finally:
        counter.close()
    assert 0 < plain["instructions"] < used["instructions"]
    assert used["instructions"] >= PAGES
    # nor what starts it, which is a Python of its own
    assert least["instructions"] < plain["instructions"] / 2


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
def test_callgrind_counts_alike_and_more_for_more(tmp_path: Path) -> None:
    def count(turns: int) -> float:
        loop = f"i=0; while [ $i -lt {turns} ]; do i=$((i+1)); done"
        return commands.callgrind(side("/bin/sh", "-c", loop), timeout=300)

    few, again, many = count(100), count(100), count(2000)
    assert again == pytest.approx(few, rel=1e-3)
    assert many > few * 1.5
    with pytest.raises(UsageError, match="under callgrind: the command ended with exit code 3"):
        commands.callgrind(side("/bin/sh", "-c", "exit 3"), timeout=300)


def test_callgrind_s_files() -> None:
    assert commands.total(b"events: Ir\nfn=(1)\n0 5\ntotals: 1234\n") == 1234
    with pytest.raises(UsageError, match="no totals"):
        commands.total(b"")


def test_the_peak_is_the_command_s_own_however_large_the_gate_is() -> None:
    """A forked process takes over the resident size of the one that forked it."""
    ballast = bytearray(b"x") * 300_000_000
    found = commands.run(python("pass"), timeout=120)
    assert found["peak_bytes"] < len(ballast) / 4
