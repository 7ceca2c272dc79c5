"""Signals to all processes of a job, and a guardian that ends the jobs of a dltune that was killed.

Without the guardian, nobody would let such jobs go on, or end them: dltune was killed before it
could. The guardian runs as `python -m dltune.tune.guardian`. It reads the ids of sessions, "+"
before a session that begins and "-" before a session that has ended, one on each line. At the end
of its input it kills the remaining sessions.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable

from dltune.system.proc import stat


def freeze(session: int) -> None:
    """Stop all processes of a job's session: input pipeline and helpers, not only its steps.

    Otherwise its input pipeline would fill while others have their turns, and the first steps of
    its own turn would find more data than they do in a long run. A job is stopped for
    this reason only where steps wait for their data: at the end of an epoch, tf.data's tuning
    thread wakes late (half a minute) in a process that was stopped.
    """
    stat.send(signal.SIGSTOP, session)


def thaw(session: int) -> None:
    """Let all processes of a job's session go on."""
    stat.send(signal.SIGCONT, session)


def end(session: int) -> None:
    """Kill all processes of a job's session."""
    stat.send(signal.SIGKILL, session)


class Guardian:
    """The guardian process, and the messages to it.

    Use as a context manager: leaving the block lets it go.
    """

    def __enter__(self) -> Guardian:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dltune.tune.guardian"],
            stdin=subprocess.PIPE,
            start_new_session=True,  # what ends dltune from the terminal must not end it
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def begins(self, session: int) -> None:
        self._tell(f"+{session}")

    def ended(self, session: int) -> None:
        self._tell(f"-{session}")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()


def watch(lines: Iterable[str]) -> set[int]:
    """The sessions that have begun and not ended when the lines end."""
    sessions: set[int] = set()
    for line in lines:
        act = sessions.add if line[0] == "+" else sessions.discard
        act(int(line[1:]))
    return sessions


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for session in watch(sys.stdin):
        end(session)
