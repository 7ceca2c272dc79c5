"""Reading processes that are kept for a whole session, so that starting them costs nothing."""

from __future__ import annotations

import array
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.job.launch import OF_DLTUNE, python_path
from dltune.schemas.io import Method, Walk

MODULE = "dltune.systems.lmdb.experiments.reader"
READY, GO = "ready", "go"


@dataclass(frozen=True)
class Task:
    """The work of all readers of a run: read pieces (bytes `offsets` and `sizes`) for `seconds` at
    most, reader r of n every n-th from r on.

    walk     "cursor": touch the first page of the pieces between, too; "offsets": pass them over
    advised  advise the kernel to expect random access
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


@dataclass(frozen=True)
class Outcome:
    """The cost of reading for one process. Seconds and bytes; `began` and `ended` of
    CLOCK_MONOTONIC; `queued`: ready, waiting for a CPU; `storage`: read_bytes, 0 where the kernel
    does not count."""

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


class Refused(Exception):
    """The file cannot be read this way; the message is the system's own."""


class Readers:
    """Use as a context manager: leaving the block ends the processes."""

    def __init__(self, path: Path, count: int) -> None:
        self._path = path
        environment = {**os.environ, "PYTHONPATH": python_path(OF_DLTUNE)}
        self._children = [
            subprocess.Popen(
                [sys.executable, "-m", MODULE],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
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
        when the file has vanished, and when a reader died (the file became shorter).
        """
        children = self._children[: task.readers]
        count = len(task.offsets)
        for rank, child in enumerate(children):
            low, high, every, number = 0, count, task.readers, rank
            if task.apart:
                low, high = rank * count // task.readers, (rank + 1) * count // task.readers
                every, number = 1, 0
            offsets, sizes = (
                array.array("q", part[low:high]) for part in (task.offsets, task.sizes)
            )
            own = replace(task, readers=every, offsets=offsets, sizes=sizes)
            self._send(child, (str(self._path), -1 if task.passing else number, own))
        answers = [self._answer(child) for child in children]
        ready = [child for child, answer in zip(children, answers, strict=True) if answer == READY]
        for child in ready:
            self._send(child, GO)
        answers += [self._answer(child) for child in ready]
        return [self._outcome(answer) for answer in answers if answer != READY]

    def _send(self, child: subprocess.Popen[bytes], message: object) -> None:
        assert child.stdin is not None
        try:
            pickle.dump(message, child.stdin)
            child.stdin.flush()
        except OSError:
            raise self._died() from None

    def _answer(self, child: subprocess.Popen[bytes]) -> Outcome | str:
        assert child.stdout is not None
        try:
            answer: Outcome | str = pickle.load(child.stdout)
        except EOFError:
            raise self._died() from None
        return answer

    def _outcome(self, answer: Outcome | str) -> Outcome:
        if isinstance(answer, str):
            raise self._unless_vanished(Refused(answer))
        return answer

    def _died(self) -> Exception:
        # reading a mapping beyond a file's end kills (SIGBUS)
        return self._unless_vanished(
            UsageError(
                f"{self._path} became shorter while it was read, or its storage failed",
                remedy="retry when no process writes to it",
            )
        )

    def _unless_vanished(self, error: Exception) -> Exception:
        if self._path.exists():
            return error
        return UsageError(f"{self._path} was deleted while it was read", remedy=None)
