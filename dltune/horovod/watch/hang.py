"""Ranks that hang, told from those that wait for them.

All ranks meet in every collective, so one that does not come keeps all. Its background thread has
stopped while others' go on, or is stopped itself; or all cycle in vain, because its Python has
handed in no gradients: then the others' main threads wait within TensorFlow, and its own does not.
"""

from __future__ import annotations

from collections.abc import Sequence

from dltune.horovod.watch.memory import Memory, mappings
from dltune.horovod.watch.progress import HUNG_SECONDS
from dltune.horovod.watch.rank_seen import RankSeen
from dltune.job.processes import process_stat

_STATES = {
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "D": "in uninterruptible sleep",
}


def hung(seen: Sequence[RankSeen]) -> dict[int, str]:
    """Of each rank (by its pid) that the others wait for: what shows it."""
    alive = [rank for rank in seen if rank.ended_at is None and rank.progress.known]
    if len(alive) < 2:
        return {}
    stopped = {
        rank.pid: f"its process is {_STATES[stat.state]}"
        for rank in alive
        if (stat := process_stat(rank.pid)) and stat.state in _STATES and not _moves(rank)
    }
    if stopped:
        return stopped
    still = [rank for rank in alive if not rank.progress.cycling]
    if still:
        said = f"its background thread has done nothing for {HUNG_SECONDS:.0f} s"
        return {rank.pid: said for rank in still} if len(still) < len(alive) else {}
    if any(rank.progress.working for rank in alive):
        return {}
    outside = [rank for rank in alive if _within_tensorflow(rank.pid) is False]
    said = (
        f"its Python has done nothing for {HUNG_SECONDS:.0f} s, and does not wait for gradients as "
        "the others do"
    )
    return {rank.pid: said for rank in outside} if len(outside) < len(alive) else {}


def _moves(rank: RankSeen) -> bool:
    return rank.progress.cycling or rank.progress.working


def _within_tensorflow(pid: int) -> bool | None:
    """Whether the main thread waits in a call of TensorFlow's; None when it cannot be seen."""
    try:
        code = [
            range(m.start, m.end)
            for m in mappings(pid)
            if m.executable and "/tensorflow/" in m.path and "/libtensorflow" in m.path
        ]
        with Memory(pid) as memory:
            stack = memory.stack(pid)
            if stack is None:
                return None
            return any(word in part and memory.is_return(word) for word in stack for part in code)
    except OSError:
        return None
