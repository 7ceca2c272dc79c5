"""How long steps wait for data, and how long for storage."""

from __future__ import annotations

from dltune.analysis.parts import part
from dltune.documents.io import Process, Thread
from dltune.findings.seen import Seen


def input_share(seen: Seen) -> float:
    """Of the wall time: by the parts of the steps or by the looks at Python, since data are asked
    for in a step or before it; 0 if neither is known."""
    python = seen.observation.python if seen.observation else None
    looks = sum(one.share for one in python.shares if one.activity == "input") if python else 0.0
    return max(looks, part(seen.profile.profile, "input") if seen.profile else 0.0)


def longest(seen: Seen) -> tuple[Process, Thread] | None:
    """The thread that waited for storage the most of its time, and its process."""
    readers = seen.io.watch.readers if seen.io and seen.io.watch else []
    return max(readers, key=lambda one: one[1].waiting / one[1].seconds, default=None)


def main_thread_waits(seen: Seen) -> float:
    """Share of its time that the main thread of the process that was started waits for storage."""
    watch = seen.io.watch if seen.io else None
    watched = {one.pid for one in watch.processes} if watch else set()
    waits = (
        thread.waiting / thread.seconds
        for process, thread in (watch.readers if watch else ())
        if thread.tid == process.pid and process.parent not in watched
    )
    return min(1.0, max(waits, default=0.0))


def storage_share(seen: Seen) -> float | None:
    """What waiting for storage costs of the job's time, at most; None where it is not known.

    It costs what the main thread of the process that was started waits. The wait of another thread
    costs no more than what steps wait for their data.
    """
    found = longest(seen)
    if found is None:
        return None
    if main := main_thread_waits(seen):
        return main
    _, thread = found
    known = seen.observation is not None and seen.observation.python is not None
    waits = min(thread.waiting / thread.seconds, input_share(seen))
    return waits if seen.profile or known else None
