"""The methods that replace a background thread's spinning in MPI.

`non-blocking` is NBCS and `global-sleep` is GS of the thesis (sections 6.3.2 and 6.3.1). `yield` is
Open MPI's `mpi_yield_when_idle`. `rest` (cycles on demand) also combines with one of the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass

from dltune.systems.ranks.allreduce.model import Setting
from dltune.systems.ranks.allreduce.observed import YIELDING
from dltune.systems.ranks.allreduce.section import Sleeps
from dltune.systems.ranks.simulation.method import Method
from dltune.systems.ranks.simulation.outcome import Outcome

NAMES = ("non-blocking", "global-sleep", "yield", "rest")
WAYS = (
    ("non-blocking",),
    ("global-sleep",),
    ("non-blocking", "global-sleep"),
    ("yield",),
    ("rest",),
    ("non-blocking", "rest"),
    ("yield", "rest"),
)
# Seconds between two tests; among equals the one that is met first. A try-out on two ranks found
# 30 us better than 100 and 400.
SLEEPS = (30e-6, 10e-6, 100e-6, 400e-6)
AGREE = (1, 5, 20)  # cycles; the thesis found every cycle best
# Seconds, the most that a thread with nothing to send rests: events not known to wake it (a
# shutdown, a tensor negotiated by name) come so much later at most. Our choice.
REST = 50e-3
WORTH = 0.005

GLOO = (
    "non-blocking, global-sleep, yield and rest are for Horovod over MPI, whose background threads "
    "spin while they wait; with gloo they already block in poll()"
)


@dataclass(frozen=True)
class Way:
    """`names`: of NAMES. Under `setting` and `method` the step has this `outcome`."""

    names: tuple[str, ...]
    sleeps: Sleeps | None
    setting: Setting
    method: Method
    outcome: Outcome


Predict = Callable[[Setting, Method], Outcome]


def ways(wanted: Collection[str], setting: Setting, method: Method, predict: Predict) -> list[Way]:
    """The best form of each way to wait that only needs the `wanted` ones, on top of a setting."""
    found: list[Way] = []
    for names in WAYS:
        if not set(names) <= set(wanted):
            continue
        own = dataclasses.replace(setting, waiting=YIELDING) if "yield" in names else setting
        tests = SLEEPS if "non-blocking" in names else (None,)
        cycles = AGREE if "global-sleep" in names else (None,)
        rest = REST if "rest" in names else None
        best: Way | None = None
        for between in tests:
            for every in cycles:
                slept = dataclasses.replace(
                    method, between_tests=between, agree_every=every, rest=rest
                )
                sleeps = None if names == ("yield",) else Sleeps(between, every, rest)
                way = Way(names, sleeps, own, slept, predict(own, slept))
                if best is None or way.outcome.seconds < best.outcome.seconds * (1 - WORTH):
                    best = way
        assert best is not None
        found.append(best)
    return found
