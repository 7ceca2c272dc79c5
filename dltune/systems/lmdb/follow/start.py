"""Start and end of the process that gives hints, and its report."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from dltune.systems.lmdb.section import IoPlan

END_SECONDS = 10.0  # for it to notice that the job has ended


@contextmanager
def followed(section: IoPlan, pid: int, say: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, hints for the job whose first process is `pid`, as planned."""
    files = [file for file in section.files if file.follow]
    if not files:
        yield
        return
    process = subprocess.Popen(
        [sys.executable, "-m", "dltune.systems.lmdb.follow", str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None
    with process.stdin:
        json.dump([msgspec.to_builtins(file) for file in files], process.stdin)
    process.stdin = None
    try:
        yield
        try:
            out, error = process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            say("the result of the read-ahead hints is unknown: their process did not end in time")
            return
        if process.returncode:
            last = (error.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
            say(f"the read-ahead hints failed: {last}")
        elif out:
            result = json.loads(out)
            for file in result["files"]:
                say(f"gave read-ahead hints for {file['asked'] / 1e6:.0f} MB of {file['path']}")
            say(f"the read-ahead hints took {result['cpu']:.2f} s of CPU time")
    finally:
        process.kill()
        process.communicate()
