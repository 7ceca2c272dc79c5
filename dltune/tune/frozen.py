"""A job that is stopped altogether: its input pipeline and its helpers, not its steps alone.

Else its input pipeline would fill while others have their turns, and the first steps of its own
turn would find more data than they do in a long run. Only where steps wait for their data: at the
end of an epoch, tf.data's tuning thread wakes late (half a minute) in a process that was stopped.
"""

from __future__ import annotations

import signal

from dltune.system.proc import stat


def freeze(session: int) -> None:
    """Stop all processes of a job's session."""
    stat.send(signal.SIGSTOP, session)


def thaw(session: int) -> None:
    """Let them go on."""
    stat.send(signal.SIGCONT, session)


def end(session: int) -> None:
    """Kill them."""
    stat.send(signal.SIGKILL, session)
