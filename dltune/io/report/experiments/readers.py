"""Reading processes that are kept for a whole session, so that starting them costs nothing."""

from __future__ import annotations

import array
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dltune.documents.io import Method, Walk
from dltune.errors import DltuneError, UsageError

MODULE = "dltune.io.report.experiments.reader"


@dataclass(frozen=True)
class Task:
    """What all readers of a run do: read pieces (bytes `offsets` and `sizes`) for `seconds` at
    most, reader r of n every n-th from r on.

    walk     "cursor": touch the first page of the pieces between, too; "offsets": pass them over
    advised  tell the kernel to expect random access
    ahead    hint so many pieces ahead (WILLNEED), in steps of `hint_step` bytes
    apart    each reader has a contiguous part instead
    passing  with walk "cursor": read nothing, pass everything
    """

    method: Method
    readers: int
    offsets: Sequence[int]
    sizes: Sequence[int]
    seconds: float
    walk: Walk = "offsets"
    advised: bool = False
    ahead: int = 0
    hint_step: int = 128 << 10
    apart: bool = False
    passing: bool = False


class Outcome(msgspec.Struct, frozen=True):
    """What reading cost one process. Seconds and bytes; `began` and `ended` of CLOCK_MONOTONIC;
    `queued`: ready, waiting for a CPU; `storage`: read_bytes, 0 where the kernel does not count."""

    began: float
    ended: float
    bytes: int
    records: int
    passed: int
    cpu: float
    queued: float
    voluntary: int
    involuntary: int
    major: int
    storage: int

    @property
    def seconds(self) -> float:
        return max(1e-9, self.ended - self.began)

    @property
    def asleep(self) -> float:
        """The share of the time neither on a CPU nor waiting for one."""
        return min(1.0, max(0.0, 1.0 - (self.cpu + self.queued) / self.seconds))


class _Failed(msgspec.Struct, frozen=True):
    error: str


_decode = msgspec.json.Decoder(Outcome).decode
_decode_failed = msgspec.json.Decoder(_Failed).decode


class Refused(Exception):
    """The file cannot be read this way; the message is the system's own."""


class Readers:
    """Use as a context manager: leaving the block ends the processes."""

    def __init__(self, path: Path, count: int) -> None:
        self._path = path
        root = str(Path(__file__).resolve().parents[4])
        paths = [root, os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
        self._children = [
            subprocess.Popen(
                [sys.executable, "-m", MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
            for _ in range(count)
        ]

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.kill()
        for child in self._children:
            with child:
                pass

    def run(self, task: Task) -> list[Outcome]:
        """Let `task.readers` processes read at the same time.

        Raises Refused when the storage does not take this way of reading (O_DIRECT), UsageError
        when the file has vanished, DltuneError when a reader died (the file became shorter).
        """
        children = self._children[: task.readers]
        count = len(task.offsets)
        for rank, child in enumerate(children):
            low, high, every = 0, count, task.readers
            if task.apart:
                low, high = rank * count // task.readers, (rank + 1) * count // task.readers
                every = 1
            told = {
                "path": str(self._path),
                "method": task.method,
                "walk": task.walk,
                "rank": -1 if task.passing else rank if every > 1 else 0,
                "readers": every,
                "advised": task.advised,
                "ahead": task.ahead,
                "hint_step": task.hint_step,
                "seconds": task.seconds,
                "pieces": high - low,
            }
            numbers = (array.array("q", part[low:high]) for part in (task.offsets, task.sizes))
            self._send(child, json.dumps(told).encode() + b"\n" + b"".join(map(bytes, numbers)))
        lines = [self._line(child) for child in children]
        if all(line == b"ready\n" for line in lines):
            for child in children:
                self._send(child, b"go\n")
            lines = [self._line(child) for child in children]
        else:
            for child, line in zip(children, lines, strict=True):
                if line == b"ready\n":
                    self._send(child, b"go\n")
                    self._line(child)
        return [self._outcome(line) for line in lines if line != b"ready\n"]

    def _send(self, child: subprocess.Popen[bytes], data: bytes) -> None:
        assert child.stdin is not None
        try:
            child.stdin.write(data)
            child.stdin.flush()
        except OSError:
            raise self._died() from None

    def _line(self, child: subprocess.Popen[bytes]) -> bytes:
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            raise self._died()
        return line

    def _outcome(self, line: bytes) -> Outcome:
        try:
            return _decode(line)
        except msgspec.ValidationError:
            reason = _decode_failed(line).error
        if not self._path.exists():
            raise UsageError(f"{self._path} vanished while it was read")
        raise Refused(reason)

    def _died(self) -> DltuneError:
        # reading a mapping beyond a file's end kills (SIGBUS)
        if not self._path.exists():
            return UsageError(f"{self._path} vanished while it was read")
        return UsageError(
            f"{self._path} became shorter while it was read, or its storage failed",
            remedy="read it when nobody writes to it",
        )
