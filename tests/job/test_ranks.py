"""Ranks of a command, without JAX."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from running import remaining, with_argument

from dltune.job import ranks
from dltune.system.proc import stat


def run(folder: Path, count: int, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ranks.started(range(count), count, [sys.executable, "-c", code]),
        env={**os.environ, ranks.FOLDER: str(folder)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_each_rank_is_told_which_it_is_and_the_first_is_shown(tmp_path: Path) -> None:
    code = "import os; print(os.environ['DLTUNE_RANK'], 'of', os.environ['DLTUNE_RANKS'])"
    done = run(tmp_path, 3, code)
    assert (done.returncode, done.stdout) == (0, "0 of 3\n")
    assert ranks.log(tmp_path, 2).read_text() == "2 of 3\n"
    assert ranks.first_failed(tmp_path) is None


def test_the_first_that_fails_ends_the_others(tmp_path: Path) -> None:
    code = (
        "import os, sys, time\n"
        "if os.environ['DLTUNE_RANK'] == '1':\n"
        "    sys.exit('no more')\n"
        "time.sleep(600)"
    )
    done = run(tmp_path, 3, code)
    assert done.returncode == 1
    assert ranks.first_failed(tmp_path) == (1, 1)
    assert "no more" in ranks.log(tmp_path, 1).read_text()


def test_a_rank_that_is_killed_gives_its_signal(tmp_path: Path) -> None:
    done = run(tmp_path, 2, "import os; os.kill(os.getpid(), 9)")
    assert done.returncode == 128 + 9


def test_none_is_left_when_the_starter_is_ended(tmp_path: Path) -> None:
    code = "import sys, time; print('ready', flush=True); time.sleep(600)"
    with subprocess.Popen(
        ranks.started(range(2), 2, [sys.executable, "-c", code, str(tmp_path)]),
        env={**os.environ, ranks.FOLDER: str(tmp_path)},
        stdout=subprocess.PIPE,
    ) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"ready\n"
        # until both have begun, and it sleeps: it waits for them
        log, until = ranks.log(tmp_path, 1), time.monotonic() + 240
        while not (log.exists() and log.read_text()) or stat.state(starter.pid, starter.pid) != "S":
            assert time.monotonic() < until
            time.sleep(0.02)
        starter.terminate()
        assert starter.wait(240) == 128 + signal.SIGTERM
    assert remaining(with_argument, tmp_path) == []


def test_ranks_of_another_machine_are_not_started(tmp_path: Path) -> None:
    code = "import os; print(*(os.environ[f'DLTUNE_{n}'] for n in ('RANK', 'LOCAL_RANK', 'RANKS')))"
    done = subprocess.run(
        ranks.started([2, 3], 4, [sys.executable, "-c", code]),
        env={**os.environ, ranks.FOLDER: str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stdout == ""
    assert [ranks.log(tmp_path, n).read_text() for n in (2, 3)] == ["2 0 4\n", "3 1 4\n"]
