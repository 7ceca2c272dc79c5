"""Where a thread is that never rests, by samples of its program counter."""

from __future__ import annotations

import time

from dltune.errors import UsageError
from dltune.machine.perf import events
from dltune.machine.perf.ring import Ring, Sample

# nanoseconds of CPU time between samples, and seconds for which they are taken
PERIOD, SECONDS = 1_000_000, 0.03


def places(tid: int) -> list[int]:
    """Addresses of instructions that the thread was at; none where the kernel does not tell."""
    try:
        with Ring(events.parse("cpu-clock"), period=PERIOD, tid=tid, pages=8) as ring:
            ring.enable()
            time.sleep(SECONDS)
            ring.disable()
            return [record.ip for record in ring.drain() if isinstance(record, Sample)]
    except UsageError:
        return []
