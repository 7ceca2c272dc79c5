"""The process that gives hints: python -m dltune.systems.lmdb.follow PID, with the files as JSON on
stdin.

Ends with the process PID, or with its own parent; prints what it did, as JSON, when PID ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from pathlib import Path

import numpy  # noqa: F401 - here, and not when the job waits

from dltune.system.proc.stat import descendants, session
from dltune.systems.lmdb.follow.hints import Ahead, Whole
from dltune.systems.lmdb.reader import fetch_binding

TICK = 0.01  # seconds between samples
SURVEY = 0.5  # seconds between surveys of who has the file open
SESSION = 20  # surveys between searches of every process of the machine
SHARE = 0.1  # of a core: the most that this process can use
_PR_SET_PDEATHSIG = 1


def main() -> None:
    leader = int(sys.argv[1])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the job can go on after a SIGINT
    files = json.load(sys.stdin)
    try:
        ended = os.pidfd_open(leader)
    except ProcessLookupError:
        return
    whole = [Whole(Path(file["path"])) for file in files if file["follow"] == "whole"]
    ahead = [
        Ahead(Path(file["path"]), file["ahead"]) for file in files if file["follow"] == "ahead"
    ]
    waiter = select.poll()
    waiter.register(ended, select.POLLIN)
    began, surveyed, surveys = time.monotonic(), 0.0, 0
    orphans: set[int] = set()
    fetch_binding.load()
    spent = time.process_time()  # what starting up took is not counted
    while True:
        if ahead and time.monotonic() - surveyed > SURVEY:
            surveyed = time.monotonic()
            surveys += 1
            pids = descendants(leader)
            if surveys % SESSION == 1:
                orphans = set(session(leader))
            pids |= orphans
            for follower in ahead:
                follower.frontiers.survey(pids)
        for hints in (*ahead, *whole):
            hints.look()
        used = time.process_time() - spent
        pause = used / SHARE - (time.monotonic() - began)
        if waiter.poll(max(TICK, pause) * 1000):
            break
    asked = [{"path": str(each.path), "asked": each.asked} for each in (*ahead, *whole)]
    json.dump({"files": asked, "cpu": time.process_time()}, sys.stdout)


if __name__ == "__main__":
    main()
