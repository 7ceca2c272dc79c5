"""NBCS, GS, yielding and resting: what a background thread does instead of spinning in MPI.

Sections 6.3.1 and 6.3.2 of the thesis; Open MPI's own `mpi_yield_when_idle` is the third candidate,
cycles on demand the fourth, alone or beside one of the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass

from dltune.documents.sections.allreduce import Sleeps
from dltune.planners.allreduce.model import Setting
from dltune.planners.allreduce.observed import YIELDING
from dltune.simulate.ranks.method import Method
from dltune.simulate.ranks.outcome import Outcome

NAMES = ("nbcs", "gs", "yield", "rest")
WAYS = (
    ("nbcs",),
    ("gs",),
    ("nbcs", "gs"),
    ("yield",),
    ("rest",),
    ("nbcs", "rest"),
    ("yield", "rest"),
)
# Seconds between two tests; among equals the one that is met first. A try-out on two ranks found
# 30 us better than 100 and 400.
SLEEPS = (30e-6, 10e-6, 100e-6, 400e-6)
AGREE = (1, 5, 20)  # cycles; the thesis found every cycle best
# Seconds, the most that a thread with nothing to send rests: what is not known to wake it (a
# shutdown, a tensor negotiated by name) comes so much later at most. Our choice.
REST = 50e-3
WORTH = 0.005

GLOO = (
    "nbcs, gs, yield, rest: not with gloo, whose background threads already block in poll() while "
    "they wait for other ranks, where MPI's spin"
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
        tests = SLEEPS if "nbcs" in names else (None,)
        cycles = AGREE if "gs" in names else (None,)
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
