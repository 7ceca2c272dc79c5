"""Ranks that hang, apart from those that wait for them.

All ranks meet in every collective, so a rank that does not come keeps all. Its background thread
has stopped while others' go on, or is stopped itself; or all cycle in vain, or rest, as PyTorch's
do, because its Python has handed in no gradients: then the others' main threads wait within
TensorFlow or PyTorch, and its main thread does not. Where all main threads wait there, one of its
ops can be blocked in Python (`tf.py_function`). Python's frames distinguish these cases; a thread's
C++ stack holds addresses of calls that returned long ago, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple, Protocol

from dltune.system.checks.software import py_spy_executable
from dltune.system.proc import stat
from dltune.system.proc.process import STANDARD_LIBRARY, Frame, NoStack, own_line, stacks
from dltune.systems.ranks.horovod.watch.progress import HUNG_SECONDS, Progress

_STATES = {
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "D": "in uninterruptible sleep",
}

# a page read back from storage is such a sleep too, and over before this many seconds have passed
_SLEEPS_ON = 0.2

# ranks that are sampled in parallel: a sample starts a process, which wants little of a core
LOOKS_AT_ONCE = 8
# code that waits for gradients; a DataLoader waits for its workers
_RUNTIME = re.compile(r"/(site|dist)-packages/(tensorflow|horovod|torch(?!/utils/data/))/")


class _Stand(NamedTuple):
    """The place of the Python of a rank that does nothing: outside TensorFlow, or in one of its ops
    within it. `line`: the innermost that is the job's."""

    where: Literal["outside", "within"]
    line: str | None

    def __str__(self) -> str:
        at = f" at {self.line}" if self.line else ""
        if self.where == "within":
            return f"an op of its step has been in Python code for {HUNG_SECONDS:.0f} s{at}"
        return (
            f"its Python code has made no progress for {HUNG_SECONDS:.0f} s{at}, and does not wait "
            "for gradients as the other ranks do"
        )


class Seen(Protocol):
    """A rank that is watched. `background`: its thread that sends, None before there is one.
    `ended_at`: None while it runs. `cycles`: that thread goes on where there is nothing to send."""

    @property
    def pid(self) -> int: ...
    @property
    def background(self) -> int | None: ...
    @property
    def ended_at(self) -> float | None: ...
    @property
    def progress(self) -> Progress: ...
    @property
    def cycles(self) -> bool: ...


def hung(seen: Sequence[Seen]) -> dict[int, str]:
    """Return, for each rank (by its pid) that the others wait for, the evidence.

    None hangs next to a rank that has ended: its launcher, which can take its time, ends the
    others.
    """
    alive = [rank for rank in seen if rank.ended_at is None and rank.progress.known]
    if len(alive) < 2:
        return {}
    stats = {rank.pid: stat.of_process(rank.pid) for rank in alive}
    if any(found is None or found.ended for found in stats.values()):
        return {}
    states = {pid: found.state for pid, found in stats.items() if found}
    if "D" in states.values():
        time.sleep(_SLEEPS_ON)
        states = {pid: state for pid, state in states.items() if stat.state(pid, pid) == state}
    stopped = {
        pid: f"its process is {_STATES[state]}" for pid, state in states.items() if state in _STATES
    }
    if stopped:  # not for long yet where it has moved meanwhile
        return {
            rank.pid: stopped[rank.pid]
            for rank in alive
            if rank.pid in stopped and not (rank.progress.cycling or rank.progress.working)
        }
    # another of PyTorch's several threads can send while this thread rests
    if any(rank.progress.working for rank in alive if not rank.cycles):
        return {}
    still = [rank for rank in alive if not _at_it(rank)]
    if still and len(still) < len(alive):
        return {rank.pid: _still(rank) for rank in still}
    if any(rank.cycles for rank in still):
        return {}
    if any(rank.progress.working for rank in alive):
        return {}
    with ThreadPoolExecutor(min(len(alive), LOOKS_AT_ONCE)) as pool:
        pids = [rank.pid for rank in alive]
        stands = dict(zip(pids, pool.map(_stands, pids), strict=True))
    for where in ("outside", "within"):
        hanging = {
            pid: str(stand) for pid, stand in stands.items() if stand and stand.where == where
        }
        if hanging:
            return hanging if len(hanging) < len(alive) else {}
    return {}


def still_hung(told: dict[int, str], seen: Sequence[Seen]) -> dict[int, str]:
    """Return the present result of `hung`, and of the ranks in `told` those that are not at work
    again: a sample can come while a thread runs, and shows no stack then."""
    found = hung(seen)
    for rank in seen:
        if rank.pid in told and rank.ended_at is None and not rank.progress.at_work_again:
            found.setdefault(rank.pid, told[rank.pid])
    return found


def _at_it(rank: Seen) -> bool:
    """Its background thread goes on, or the rank itself: before it has one, it imports."""
    return rank.progress.cycling or rank.progress.working


def _still(rank: Seen) -> str:
    if rank.background is None:
        return (
            f"it has made no progress for {HUNG_SECONDS:.0f} s, and has not joined the other ranks"
        )
    return f"its background thread has made no progress for {HUNG_SECONDS:.0f} s"


def _stands(pid: int) -> _Stand | None:
    """None where the rank waits for gradients as it should, or cannot be seen."""
    command = py_spy_executable()
    if command is None:
        return None
    try:
        threads = stacks(command, pid, gently=True)
    except NoStack:
        return None
    main = next((thread.frames for thread in threads if thread.os_thread_id == pid), None)
    if main is None:
        return None
    if not _waits(main):
        return _Stand("outside", own_line(main))
    for thread in threads:
        frames = thread.frames
        if any(_RUNTIME.search(frame.filename) for frame in frames) and not _waits(frames):
            return _Stand("within", own_line(frames))
    return None


def _waits(frames: Sequence[Frame]) -> bool:
    """True if TensorFlow, Horovod or PyTorch is the innermost, apart from Python's standard
    library."""
    called = (frame for frame in frames if not STANDARD_LIBRARY.search(frame.filename))
    innermost = next(called, None)
    return innermost is not None and bool(_RUNTIME.search(innermost.filename))
