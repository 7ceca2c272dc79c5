"""Ranks that hang, told from those that wait for them.

All ranks meet in every collective, so one that does not come keeps all. Its background thread has
stopped while others' go on, or is stopped itself; or all cycle in vain, because its Python has
handed in no gradients: then the others' main threads wait within TensorFlow, and its own does not.
Where all main threads wait there, one of its ops may stand in Python (`tf.py_function`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from dltune.horovod.watch.memory import Mapping, Memory, mappings
from dltune.horovod.watch.progress import HUNG_SECONDS, Progress
from dltune.horovod.watch.roles import PYTHON, returns
from dltune.job.processes import process_stat, threads

_STATES = {
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "D": "in uninterruptible sleep",
}
# a process that nobody has waited for yet
_ENDED = "ZX"

_TENSORFLOW = re.compile(r"/tensorflow/.*/?libtensorflow[^/]*$")
_SAID = {
    "outside": f"its Python has done nothing for {HUNG_SECONDS:.0f} s, and does not wait for "
    "gradients as the others do",
    "within": f"an op of its step has stood in Python code for {HUNG_SECONDS:.0f} s",
}


class Seen(Protocol):
    """A rank that is watched. `ended_at`: None while it runs."""

    @property
    def pid(self) -> int: ...
    @property
    def ended_at(self) -> float | None: ...
    @property
    def progress(self) -> Progress: ...


def hung(seen: Sequence[Seen]) -> dict[int, str]:
    """Of each rank (by its pid) that the others wait for: what shows it.

    None hangs beside one that has ended: its launcher, which may take its time, ends the others.
    """
    alive = [rank for rank in seen if rank.ended_at is None and rank.progress.known]
    if len(alive) < 2:
        return {}
    stats = {rank.pid: process_stat(rank.pid) for rank in alive}
    if any(stat is None or stat.state in _ENDED for stat in stats.values()):
        return {}
    stopped = {
        pid: f"its process is {_STATES[stat.state]}"
        for pid, stat in stats.items()
        if stat and stat.state in _STATES
    }
    if stopped:  # not for long yet where it has moved meanwhile
        return {
            rank.pid: stopped[rank.pid]
            for rank in alive
            if rank.pid in stopped and not _moves(rank)
        }
    still = [rank for rank in alive if not rank.progress.cycling]
    if still:
        said = f"its background thread has done nothing for {HUNG_SECONDS:.0f} s"
        return {rank.pid: said for rank in still} if len(still) < len(alive) else {}
    if any(rank.progress.working for rank in alive):
        return {}
    stands = {rank.pid: _stands(rank.pid) for rank in alive}
    for what, said in _SAID.items():
        found = {pid: said for pid, where in stands.items() if where == what}
        if found:
            return found if len(found) < len(alive) else {}
    return {}


def still_hung(told: dict[int, str], seen: Sequence[Seen]) -> dict[int, str]:
    """What `hung` says now, and of what it has `told` the ranks that are not at work again: a look
    may come while a thread runs, and shows no stack then."""
    found = hung(seen)
    for rank in seen:
        if rank.pid in told and rank.ended_at is None and not rank.progress.at_work_again:
            found.setdefault(rank.pid, told[rank.pid])
    return found


def _moves(rank: Seen) -> bool:
    return rank.progress.cycling or rank.progress.working


def _stands(pid: int) -> str | None:
    """Where a rank that does nothing stands: one of `_SAID`, None where it waits for gradients as
    it should, or cannot be seen."""
    try:
        mapped = mappings(pid)
        tensorflow, python = _code(mapped, _TENSORFLOW), _code(mapped, PYTHON)
        with Memory(pid) as memory:
            main = memory.stack(pid)
            if main is None:
                return None
            if not returns(memory, main, tensorflow):
                return "outside"
            for tid in threads(pid):
                stack = memory.stack(tid) if tid != pid else None
                if (
                    stack is not None
                    and returns(memory, stack, python)
                    and returns(memory, stack, tensorflow)
                ):
                    return "within"
    except OSError:
        return None
    return None


def _code(mapped: Sequence[Mapping], path: re.Pattern[str]) -> list[range]:
    return [range(m.start, m.end) for m in mapped if m.executable and path.search(m.path)]
