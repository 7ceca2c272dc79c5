"""How a process ended that another one waits for."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from dltune.horovod.watch.ending import Ending

PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
print(child.pid, flush=True)
child.wait()
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("import time; time.sleep(0.5); raise SystemExit(7)", 7),
        ("import time; time.sleep(0.5)", 0),
        ("import os, time; time.sleep(0.5); os.kill(os.getpid(), 11)", -signal.SIGSEGV),
    ],
)
def test_of_another_processs_child(code, ended):
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        ending = Ending(int(parent.stdout.readline()), may_look=True)
        assert not ending.ended()
        assert ending.code is None
        until = time.monotonic() + 60
        while not (ending.ended() and ending.code is not None) and time.monotonic() < until:
            time.sleep(0.01)
        ending.close()
        parent.kill()
    assert ending.code == ended


def test_no_such_process():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(ProcessLookupError):
        Ending(gone.pid, may_look=True)
