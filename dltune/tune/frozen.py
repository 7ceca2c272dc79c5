"""A job that stands still altogether: its input pipeline and its helpers, not its steps alone.

Else its input pipeline would fill while others have their turns, and the first steps of its own
turn would find more data than they do in a long run. Only where steps wait for their data: at the
end of an epoch, tf.data's tuning thread wakes late (half a minute) in a process that was stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal

from dltune.proc import tree


def freeze(session: int) -> None:
    """Stop all processes of a job's session."""
    _signal(session, signal.SIGSTOP)


def thaw(session: int) -> None:
    """Let them go on."""
    _signal(session, signal.SIGCONT)


def end(session: int) -> None:
    """Kill them."""
    _signal(session, signal.SIGKILL)


def _signal(session: int, number: signal.Signals) -> None:
    for pid in tree.session(session):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
