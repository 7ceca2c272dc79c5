"""The Python stacks of a process, sampled several times a second by py-spy."""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from dltune.system.checks.software import can_use_py_spy
from dltune.system.proc.process import Frame

# samples a second: each takes a millisecond or two of one CPU
RATE = 10
# seconds after which py-spy ends by itself, if no process remains to end it
LONGEST = 3600
# most seconds that py-spy takes to write its samples
WRITING = 10.0
_THREAD = re.compile(r"thread \((?:0x)?([0-9A-Fa-f]+)\)")
_FRAME = re.compile(r"(.+) \((.+?)(?::(\d+))?\)")


class Stack(NamedTuple):
    """A thread's stack, the innermost frame first, and the number of samples that found it."""

    thread: int
    frames: tuple[Frame, ...]
    looks: int


class Looks:
    """Samples of the threads of one process, including idle threads, without stopping them."""

    def __init__(self, pid: int, rate: int = RATE, *, invited: bool = False) -> None:
        """Start sampling at once, `rate` times a second, if py-spy is installed and allowed to;
        otherwise `why` holds the reason. `invited`: by the process itself."""
        self.pid = pid
        self.why: str | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="dltune-")
        self._file = Path(self._folder.name) / "stacks"
        self._process: subprocess.Popen[bytes] | None = None
        command, found = can_use_py_spy(invited=invited)
        if command is None:
            self.why = found
            return
        self._process = subprocess.Popen(
            [
                *recording(command, self._file, rate),
                *("--duration", str(LONGEST), "--pid", str(pid)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # out of the terminal's reach: ^C is for dltune to answer
            start_new_session=True,
        )

    def end(self) -> list[Stack]:
        """Stop, and return the stacks; an empty list, and the reason in `why`, if py-spy failed."""
        try:
            if self._process is None:
                return []
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGINT)
            try:
                _, said = self._process.communicate(timeout=WRITING)
            except subprocess.TimeoutExpired:
                self._process.kill()
                _, said = self._process.communicate()
            if not self._file.exists():
                lines = said.decode(errors="replace").strip().splitlines() or ["no error message"]
                self.why = f"py-spy failed: {lines[-1].removeprefix('Error: ')}"
                return []
            return list(parse(self._file.read_text(errors="replace").splitlines()))
        finally:
            self._folder.cleanup()


def recording(command: str, file: Path, rate: int) -> list[str]:
    """Return the command with which py-spy (`command`) samples to `file`, `rate` times a second."""
    return [
        *(command, "record", "--nonblocking", "--idle", "--threads", "--full-filenames"),
        *("--rate", str(rate), "--format", "raw", "--output", str(file)),
    ]


def parse(lines: Iterable[str]) -> Iterator[Stack]:
    """Yield the stacks in py-spy's raw format: a thread and its frames, the outermost first,
    between semicolons, and a count of samples."""
    for line in lines:
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        number = _THREAD.match(thread)
        if number is None or not count.isdigit():
            continue
        base = 16 if "(0x" in thread else 10
        known = [_FRAME.fullmatch(frame) for frame in reversed(frames)]
        yield Stack(
            int(number[1], base),
            tuple(Frame(m[1], m[2], int(m[3] or 0)) for m in known if m),
            int(count),
        )
