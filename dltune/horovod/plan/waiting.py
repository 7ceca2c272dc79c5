"""NBCS, GS and yielding: what a background thread does instead of spinning in MPI.

Sections 6.3.1 and 6.3.2 of the thesis; Open MPI's own `mpi_yield_when_idle` is the third candidate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass

from dltune.documents.plan_allreduce import Sleeps
from dltune.horovod.plan.model import Setting
from dltune.horovod.plan.observed import YIELDING
from dltune.simulate.ranks.method import Method
from dltune.simulate.ranks.outcome import Outcome

NAMES = ("nbcs", "gs", "yield")
# Seconds between two tests; among equals the one that is met first. A try-out on two ranks found
# 30 us better than 100 and 400.
SLEEPS = (30e-6, 10e-6, 100e-6, 400e-6)
AGREE = (1, 5, 20)  # cycles; the thesis found every cycle best
WORTH = 0.005

GLOO = (
    "nbcs, gs, yield: not with gloo, whose background threads already block in poll() while they "
    "wait for other ranks, where MPI's spin"
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
    for names in (("nbcs",), ("gs",), ("nbcs", "gs"), ("yield",)):
        if not set(names) <= set(wanted):
            continue
        if names == ("yield",):
            yielding = dataclasses.replace(setting, waiting=YIELDING)
            found.append(Way(names, None, yielding, method, predict(yielding, method)))
            continue
        tests = SLEEPS if "nbcs" in names else (None,)
        cycles = AGREE if "gs" in names else (None,)
        best: Way | None = None
        for between in tests:
            for every in cycles:
                slept = dataclasses.replace(method, between_tests=between, agree_every=every)
                way = Way(names, Sleeps(between, every), setting, slept, predict(setting, slept))
                if best is None or way.outcome.seconds < best.outcome.seconds * (1 - WORTH):
                    best = way
        assert best is not None
        found.append(best)
    return found
