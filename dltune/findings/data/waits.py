"""How long steps wait for data, and how long for storage."""

from __future__ import annotations

from dltune.analysis.parts import part, unrecorded
from dltune.documents.io import Process, Thread
from dltune.findings.looked import costs
from dltune.findings.seen import Seen

# of the time: what is worth a word, and from where on a generator has the pipeline's Python
WAITS, GENERATES = 0.05, 0.3
# of the CPUs: where less is idle, nothing can be prepared beside the steps
IDLE = 0.05
# seconds of a step, within which an element that is ready goes from its thread to the step's
HAND_OVER = 4e-4
# seconds of a watch that a job's last report may not know of
UNREPORTED = 3.0


def input_share(seen: Seen) -> float:
    """Of the wall time: by the parts of the steps or by the looks at Python, since data are asked
    for in a step or before it; 0 if neither is known, or the looks may have found it by chance."""
    python = seen.observation.python if seen.observation else None
    looks = sum(one.share for one in python.shares if one.activity == "input") if python else 0.0
    return max(looks if costs(seen, looks) else 0.0, _in_steps(seen))


def _in_steps(seen: Seen) -> float:
    return part(seen.profile.profile, "input") if seen.profile else 0.0


def preparation_share(seen: Seen) -> float | None:
    """Of the wall time, what steps wait for data that are still being prepared, and not for storage
    nor for a generator's Python; None where that is too little to be told. No more than ops waited
    that asked for data: looks also find what calling these takes."""
    observation = seen.observation
    share = input_share(seen) - (storage_share(seen) or 0.0)
    # of one that has not ended nothing is known
    if observation and observation.graphs and observation.graphs.waited:
        waited = observation.graphs.waited / max(observation.seconds - UNREPORTED, UNREPORTED)
        share = min(share, max(waited, _in_steps(seen)))
    python = observation.python if observation else None
    if share < WAITS or (python and python.generator >= GENERATES):
        return None
    if seen.profile and 0 < share * unrecorded(seen.profile.profile) < HAND_OVER:
        return None
    return share


def longest(seen: Seen) -> tuple[Process, Thread] | None:
    """The thread that waited for storage the most of its time, and its process."""
    readers = seen.io.watch.readers if seen.io and seen.io.watch else []
    return max(readers, key=lambda one: one[1].waiting / one[1].seconds, default=None)


def main_thread_waits(seen: Seen) -> float:
    """Share of its time that the main thread of the process that trains waits for storage; where
    nobody knows which trains, of the process that was started."""
    watch = seen.io.watch if seen.io else None
    watched = {one.pid for one in watch.processes} if watch else set()
    python = seen.observation.python if seen.observation else None
    waits = (
        thread.waiting / thread.seconds
        for process, thread in (watch.readers if watch else ())
        if thread.tid == process.pid
        and (process.pid == python.pid if python else process.parent not in watched)
    )
    return min(1.0, max(waits, default=0.0))


def storage_share(seen: Seen) -> float | None:
    """What waiting for storage costs of the job's time, at most; None where it is not known.

    It costs what the main thread waits. The wait of another thread costs no more than what steps
    wait for their data.
    """
    found = longest(seen)
    if found is None:
        return None
    main = main_thread_waits(seen)
    _, thread = found
    known = seen.observation is not None and seen.observation.python is not None
    waits = max(main, min(thread.waiting / thread.seconds, input_share(seen)))
    return waits if main or seen.profile or known else None
