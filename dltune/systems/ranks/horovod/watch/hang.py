"""Ranks that hang, apart from those that wait for them.

`hung` decides which ranks of the watched job hang. `Hangs` looks for them from outside now and then
while a job runs.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from dltune.system.checks.software import py_spy_executable
from dltune.system.proc import stat
from dltune.system.proc.process import (
    STANDARD_LIBRARY,
    Frame,
    NoStack,
    cpu_seconds,
    own_line,
    stacks,
)
from dltune.system.proc.stat import counts

# seconds without progress after which a rank hangs: Horovod itself warns after 60, and a step, a
# checkpoint or a slow batch that keeps a rank this long shows some use of a core
HUNG_SECONDS = 10.0
# of one core; below it a rank's threads but wake up now and then
IDLE = 0.01


@dataclass(frozen=True)
class _Look:
    at: float
    cycles: float  # CPU seconds and switches of the background thread: it moves when they do
    others: float  # CPU seconds of threads that compute, read, or run Python


class Progress:
    """The activity of a rank over the last `HUNG_SECONDS`: its background thread's cycles, and all
    its other activity."""

    def __init__(self) -> None:
        self._looks: deque[_Look] = deque()

    def note(self, at: float, cycles: float, others: float) -> None:
        self._looks.append(_Look(at, cycles, others))
        while len(self._looks) > 2 and self._looks[1].at <= at - HUNG_SECONDS:
            self._looks.popleft()

    @property
    def known(self) -> bool:
        """True if it was watched for long enough to decide."""
        return bool(self._looks) and self._looks[-1].at - self._looks[0].at >= HUNG_SECONDS

    @property
    def cycling(self) -> bool:
        return self._looks[-1].cycles > self._looks[0].cycles

    @property
    def working(self) -> bool:
        return self._works(IDLE)

    @property
    def at_work_again(self) -> bool:
        """True beyond doubt: a rank that hung can do a little now and then."""
        return self._works(5 * IDLE)

    def _works(self, share: float) -> bool:
        first, last = self._looks[0], self._looks[-1]
        return last.others - first.others > share * (last.at - first.at)


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
    """The place of the Python of a rank that does nothing: outside TensorFlow, in one of its ops
    within it, or where it waits for gradients as it should. `line`: the innermost that is the
    job's."""

    where: Literal["outside", "within", "waits"]
    line: str | None = None

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

    All ranks meet in every collective, so a rank that does not come keeps all. Its background
    thread has stopped while others' go on, or is stopped itself; or all cycle in vain, or rest, as
    PyTorch's do, because its Python has handed in no gradients: then the others' main threads wait
    within TensorFlow or PyTorch, and its main thread does not. Where all main threads wait there,
    one of its ops can be blocked in Python (`tf.py_function`). Python's frames distinguish these
    cases; a thread's C++ stack holds addresses of calls that returned long ago, too. If py-spy
    fails for one rank, none hangs: the others can wait for that rank.
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
        stands = {
            pid: stand for pid, stand in zip(pids, pool.map(_stands, pids), strict=True) if stand
        }
    if len(stands) < len(alive):
        return {}
    for where in ("outside", "within"):
        hanging = {pid: str(stand) for pid, stand in stands.items() if stand.where == where}
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
    """Return the place of a rank's Python; None if py-spy cannot sample it."""
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
    return _Stand("waits")


def _waits(frames: Sequence[Frame]) -> bool:
    """True if TensorFlow, Horovod or PyTorch is the innermost, apart from Python's standard
    library."""
    called = (frame for frame in frames if not STANDARD_LIBRARY.search(frame.filename))
    innermost = next(called, None)
    return innermost is not None and bool(_RUNTIME.search(innermost.filename))


# between two samples: a few small files of /proc for each rank
LOOK_SECONDS = 2.0


@dataclass
class Rank:
    """One whose hvd.init() is over. `threads`: those that it added, the background one first."""

    rank: int
    pid: int
    threads: tuple[int, ...]
    progress: Progress = field(default_factory=Progress)
    ended_at: float | None = None
    cycles: bool = True

    @property
    def background(self) -> int | None:
        return self.threads[0] if self.threads else None

    def look(self, now: float) -> bool:
        """Take a sample. True if the process still exists, with its background thread: in a process
        that was killed, that thread can end well before the main thread."""
        used = cpu_seconds(self.pid)
        found = [counts(self.pid, thread) for thread in self.threads]
        if used is None or not found or found[0] is None:
            return False
        # CPU time of a helper that has ended is only in the total of its process
        added = [one.cpu if one else 0.0 for one in found]
        self.progress.note(now, added[0], used - sum(added))
        return True


class Hangs:
    """Hangs of the ranks that were handed in. Each hang is reported once, and so is the rank's
    recovery.

    `over`: of ranks that hung when the first rank ended, a sentence each.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._ranks: dict[int, Rank] = {}  # by pid
        self._told: dict[int, str] = {}
        self._looked = 0.0
        self.over: list[str] = []

    def add(self, rank: int, pid: int, threads: tuple[int, ...]) -> None:
        self._ranks[pid] = Rank(rank, pid, threads)

    def ended(self) -> None:
        """A rank has: the others do not train on."""
        self.over += [f"{self._name(pid)} hung: {shown}" for pid, shown in self._told.items()]
        self._told.clear()
        self._ranks.clear()

    def look(self) -> None:
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        there = [rank.look(now) for rank in self._ranks.values()]
        if not all(there):
            return
        found = still_hung(self._told, list(self._ranks.values()))
        for pid, shown in found.items():
            if pid not in self._told:
                self._say(f"{self._name(pid)} hangs, and the others wait for it: {shown}")
        for pid in self._told.keys() - found.keys():
            self._say(f"{self._name(pid)} continues")
        self._told = found

    def _name(self, pid: int) -> str:
        return f"rank {self._ranks[pid].rank} (pid {pid})"
