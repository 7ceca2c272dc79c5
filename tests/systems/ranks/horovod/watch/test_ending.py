"""How a process ended that another one waits for."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from dltune.systems.ranks.horovod.watch.ranks import Ending

PARENT = """
import subprocess, sys, time
code = "import sys; sys.stdin.read(); " + sys.argv[1]  # until it may go
child = subprocess.Popen([sys.executable, "-c", code])
print(child.pid, flush=True)
child.wait()
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("raise SystemExit(7)", 7),
        ("pass", 0),
        ("import os; os.kill(os.getpid(), 11)", -signal.SIGSEGV),
    ],
)
def test_of_another_processs_child(code, ended):
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        ending = Ending(int(parent.stdout.readline()))
        assert not ending.ended()
        assert ending.code is None
        parent.stdin.close()
        until = time.monotonic() + 120
        while not (ending.ended() and ending.code is not None) and time.monotonic() < until:
            time.sleep(0.01)
        ending.close()
        parent.kill()
    assert ending.code == ended


def test_no_such_process():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(ProcessLookupError):
        Ending(gone.pid)
