"""A thread that waits for storage.

It costs the job what the main thread of the process that was started waits. Another thread's wait
costs no more than what steps wait for their data, where a profile tells that.
"""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.parts import part
from dltune.documents.finding import Finding
from dltune.documents.io import Process, Thread
from dltune.findings.seen import Seen
from dltune.words import share

# a thread that waits for storage less than this of its time is not held up by it; a job that waits
# more than GRAVE is
LITTLE, GRAVE = 0.02, 0.10
# at a thread, for an estimate
LOOKS = 20


def find(seen: Seen) -> Iterator[Finding]:
    watch = seen.io.watch if seen.io else None
    readers = watch.readers if watch else []
    if watch is None or not readers:
        return
    process, thread = max(readers, key=lambda one: one[1].waiting / one[1].seconds)
    waits = thread.waiting / thread.seconds
    if waits < LITTLE or thread.looks < LOOKS:
        return
    line = watch.lines[0] if watch.lines else None
    at = f"; Python stands at {line.where} in {share(line.share)} of looks" if line else ""
    asleep = (
        f", asleep for {share(thread.sleep_share)} of its reading" if thread.sleep_share else ""
    )
    yield Finding(
        "slow-store",
        f"a thread of pid {process.pid} waits for storage {share(waits)} of its time",
        f"thread {thread.tid} ({thread.name}): {thread.waiting:.1f} of {thread.seconds:.1f} s"
        f"{asleep}; {thread.voluntary / thread.seconds:.0f} voluntary switches/s{at}",
        "read ahead of the need: the findings on its files say how; dltune io-report "
        "--file tells what the storage could give"
        if waits >= GRAVE
        else None,
        share=_cost(seen, process, thread) if waits >= GRAVE else None,
        sure="measured",
    )


def _cost(seen: Seen, process: Process, thread: Thread) -> float | None:
    """Of the job's time; None where it is not known."""
    waits = min(1.0, thread.waiting / thread.seconds)
    watched = {one.pid for one in seen.io.watch.processes} if seen.io and seen.io.watch else set()
    if thread.tid == process.pid and process.parent not in watched:
        return waits
    return min(waits, part(seen.profile.profile, "input")) if seen.profile else None
