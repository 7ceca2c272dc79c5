"""A command timed whole: its wall time, and the kernel's accounting of it and its children."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from dltune.base.errors import UsageError
from dltune.gate.side import Side, blame
from dltune.system.proc import stat

if TYPE_CHECKING:
    from dltune.gate.instructions import Counter

ACCOUNTED = str(Path(__file__).with_name("accounted.py"))


def run(side: Side, *, timeout: float, counter: Counter | None = None) -> dict[str, float]:
    """Run the side's command once: metric -> value, of the command and all children it waited for.

    `peak_bytes` is the resident memory of the largest of its processes. Raises UsageError when it
    cannot be started, fails, or takes longer than `timeout` seconds; then, and whenever the block
    is left early, its whole process group is ended.
    """
    with tempfile.TemporaryDirectory(prefix="dltune-gate-log-", dir=side.temporary) as folder:
        log = Path(folder) / "log"
        with open(log, "wb") as file:
            told, late = _accounted(side, file, timeout, counter)
        if late:
            raise blame(
                side,
                f"the command took longer than {timeout:g} s",
                log,
                remedy="increase `timeout` in the configuration",
            )
        if errno := told.get("errno"):
            raise blame(side, f"cannot start {side.command[0]}: {os.strerror(errno)}")
        if (code := told.get("exit_code")) is None:
            raise blame(side, "another process killed the command", log)
        if code:
            shown = code if code > 0 else 128 - code
            raise blame(side, f"the command ended with exit code {shown}", log)
    values: dict[str, float] = told["values"]
    return values


def build(side: Side, script: str, timeout: float) -> None:
    """Run the build command in the side's checkout, by the shell. Raises UsageError, which names
    the side and shows the last lines, when it fails."""
    try:
        run(replace(side, command=["sh", "-c", script]), timeout=timeout)
    except UsageError as error:
        raise UsageError(
            f"the build failed {error}", remedy="check `build` in the configuration"
        ) from None


def _accounted(
    side: Side, log: BinaryIO, timeout: float, counter: Counter | None
) -> tuple[dict[str, Any], bool]:
    """Return accounted.py's report on the side's command, and True if it had to be ended for
    being late."""
    late = threading.Event()
    reading, writing = os.pipe()
    counting = counter.handle if counter else -1
    handles = [str(writing), str(counting)]
    with open(reading, "rb") as told:
        try:
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", ACCOUNTED, *handles, *side.command],
                cwd=side.folder,
                env={**os.environ, **side.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[writing, counting] if counter else [writing],
            )
        except OSError as error:
            why = error.strerror or "it cannot be run"
            raise blame(side, f"cannot start {side.command[0]}: {why}") from None
        finally:
            os.close(writing)

        def end() -> None:
            late.set()
            _kill(child.pid)

        watch = threading.Timer(timeout, end)
        watch.start()
        try:
            child.wait()
        except BaseException:
            _kill(child.pid)
            child.wait()
            raise
        finally:
            watch.cancel()
        written = told.read()
    values: dict[str, Any] = json.loads(written.splitlines()[0]) if written else {}
    _kill(child.pid)  # the processes that it has left behind
    return values, late.is_set()


def _kill(group: int) -> None:
    """Kill a process group, and its descendants in other sessions, as torchrun's ranks."""
    stat.send(signal.SIGKILL, group)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
