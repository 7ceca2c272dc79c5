"""How long steps wait for data, and how long for storage."""

from __future__ import annotations

from dltune.analysis.parts import part
from dltune.documents.io import Process, Thread
from dltune.findings.seen import Seen


def input_share(seen: Seen) -> float:
    """Of the wall time: by the parts of the steps, else by the looks at Python; 0 if neither is
    known."""
    if seen.profile and any(step.parts for step in seen.profile.profile.steps):
        return part(seen.profile.profile, "input")
    python = seen.observation.python if seen.observation else None
    return sum(one.share for one in python.shares if one.activity == "input") if python else 0.0


def longest(seen: Seen) -> tuple[Process, Thread] | None:
    """The thread that waited for storage the most of its time, and its process."""
    readers = seen.io.watch.readers if seen.io and seen.io.watch else []
    return max(readers, key=lambda one: one[1].waiting / one[1].seconds, default=None)


def storage_share(seen: Seen) -> float | None:
    """What waiting for storage costs of the job's time, at most; None where it is not known.

    It costs what the main thread of the process that was started waits. The wait of another thread
    costs no more than what steps wait for their data.
    """
    found = longest(seen)
    if found is None or seen.io is None or seen.io.watch is None:
        return None
    process, thread = found
    waits = min(1.0, thread.waiting / thread.seconds)
    watched = {one.pid for one in seen.io.watch.processes}
    if thread.tid == process.pid and process.parent not in watched:
        return waits
    known = seen.observation is not None and seen.observation.python is not None
    return min(waits, input_share(seen)) if seen.profile or known else None
