"""A command timed whole: its wall time, and what the kernel accounts to it and its children."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from dltune.errors import UsageError
from dltune.gate.instructions import Counter
from dltune.gate.side import Side, blame, last_lines

KIBIBYTE = 1024


def run(side: Side, *, timeout: float, counter: Counter | None = None) -> dict[str, float]:
    """Run the side's command once: metric -> value, of the command and all children it waited for.

    `peak_bytes` is the resident memory of the largest of its processes. Raises UsageError when it
    cannot be started, fails, or takes longer than `timeout` seconds; then, and whenever the block
    is left early, its whole process group is ended.
    """
    with tempfile.TemporaryDirectory(prefix="dltune-gate-log-") as folder:
        log = Path(folder) / "log"
        with open(log, "wb") as file:
            counted = counter.read() if counter else 0
            began = time.perf_counter()
            try:
                child = subprocess.Popen(
                    side.command,
                    cwd=side.folder,
                    env={**os.environ, **side.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
            except OSError as error:
                why = error.strerror or "it cannot be run"
                raise blame(side, f"cannot start {side.command[0]}: {why}") from None
            status, usage, late = _wait(child, timeout)
            seconds = time.perf_counter() - began
        code = os.waitstatus_to_exitcode(status)
        if late:
            raise blame(side, f"the command took longer than {timeout:g} s", last_lines(log))
        if code:
            shown = code if code > 0 else 128 - code
            raise blame(side, f"the command ended with exit code {shown}", last_lines(log))
    values = {
        "time": seconds,
        "cpu_time": usage.ru_utime + usage.ru_stime,
        "peak_bytes": float(usage.ru_maxrss * KIBIBYTE),
        "context_switches": float(usage.ru_nvcsw + usage.ru_nivcsw),
        "page_faults": float(usage.ru_minflt + usage.ru_majflt),
    }
    if counter:
        values["instructions"] = float(counter.read() - counted)
    return values


def build(side: Side, script: str, timeout: float) -> None:
    """Run the build command in the side's checkout, by the shell. Raises UsageError, which names
    the side and shows the last lines, when it fails."""
    shell = Side(side.name, side.title, ["sh", "-c", script], side.folder, side.environment)
    try:
        run(shell, timeout=timeout)
    except UsageError as error:
        raise UsageError(f"the build failed {error}", remedy="build = ... names it") from None


def _wait(
    child: subprocess.Popen[bytes], timeout: float
) -> tuple[int, resource.struct_rusage, bool]:
    """The exit status and usage of the child, and whether it had to be ended for being late."""
    late = threading.Event()

    def end() -> None:
        late.set()
        _kill(child.pid)

    watch = threading.Timer(timeout, end)
    watch.start()
    try:
        _, status, usage = os.wait4(child.pid, 0)
    except BaseException:
        _kill(child.pid)
        with contextlib.suppress(ChildProcessError):
            os.wait4(child.pid, 0)
        raise
    finally:
        watch.cancel()
        child.returncode = 0  # it is waited for: Popen must not look again
    if late.is_set():
        _kill(child.pid)
    return status, usage, late.is_set()


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
