"""Commands whose stderr is a terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import time
from collections.abc import Iterator, Sequence


class View:
    """A process, and what it has shown so far."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        self._shown = b""

    def until(self, *words: bytes, patience: float = 240.0) -> None:
        """Wait for all of these to be shown."""
        end = time.monotonic() + patience
        while not all(word in self._shown for word in words):
            assert time.monotonic() < end, self._shown
            assert self._read(), self._shown

    def rest(self) -> tuple[bytes, bytes]:
        """Wait for the end: all of its stdout, and all that it showed."""
        while self._read():
            pass
        out, _ = self.process.communicate(timeout=240)
        return out, self._shown

    def _read(self) -> bool:
        with contextlib.suppress(OSError):  # the other side is closed
            self._shown += (part := os.read(self._terminal, 1 << 16))
            return bool(part)
        return False


@contextlib.contextmanager
def on_a_terminal(command: Sequence[str]) -> Iterator[View]:
    """It is killed at the end of the block if it still runs."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=follower,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(follower)
    try:
        with process:
            try:
                yield View(process, leader)
            finally:
                process.kill()
    finally:
        os.close(leader)
