"""A plan's section on Horovod is checked whole, each fault by its path."""

from __future__ import annotations

import math

import msgspec
import pytest

from dltune.documents.sections.allreduce import (
    AllreducePlan,
    Bin,
    Knobs,
    Order,
    RankCores,
    RankThreads,
    Sleeps,
    faults,
)

CORES = 4
SECTION = AllreducePlan(
    report="",
    controller="mpi",
    ranks=2,
    local=2,
    cores=(RankCores((0,), (0,), (1,), (0, 1)), RankCores((2,), (2,), (3,), (2, 3))),
    threads=RankThreads(1, 2),
    orders=(Order(((3, 4), (4,)), ("float32",) * 2, (Bin((1,), 16), Bin((0,), 48))),),
    sleeps=Sleeps(30e-6, None, 0.05),
    knobs=Knobs(1e-3, 1 << 26, 1024),
    yield_when_idle=False,
    predictions=(),
    reasons=(),
)


def bins(*found: Bin) -> dict[str, object]:
    return {"orders": (Order(((3, 4), (4,)), ("float32",) * 2, found),)}


def test_a_good_section() -> None:
    assert list(faults(SECTION, CORES)) == []
    bare = dict.fromkeys(("cores", "threads", "orders", "sleeps", "knobs"))
    assert list(faults(msgspec.structs.replace(SECTION, **bare), CORES)) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ranks": 0}, "allreduce.ranks: 0 is below 1"),
        ({"local": 3}, "allreduce.local: 3 is not one of 1 to 2"),
        ({"cores": (RankCores((4,), (0,), (1,), (1,)),) * 2}, "core 4 is not one of 0 to 3"),
        ({"threads": RankThreads(0, 2)}, "allreduce.threads"),
        (bins(Bin((0,), 48)), "they do not hold each of the 2 gradients once"),
        (bins(Bin((0, 1), 64), Bin((), 0)), "bins[1].tensors: empty"),
        (bins(Bin((0, 1), -1)), "bins[0].bytes: -1 is negative"),
        ({"sleeps": Sleeps(2.0, None)}, "between_tests: 2.0 is not within 0 to 1 s"),
        ({"sleeps": Sleeps(None, 0)}, "agree_every: 0 is below 1"),
        ({"sleeps": Sleeps(None, None, 0.0)}, "rest: 0.0 is not within 0 to 1 s"),
        ({"sleeps": Sleeps(None, None, math.nan)}, "rest: nan is not within 0 to 1 s"),
        ({"sleeps": Sleeps(None, 1, 0.05)}, "ranks that agree on the least sleep"),
        ({"controller": "gloo"}, "allreduce.sleeps: gloo blocks where MPI spins"),
        ({"knobs": Knobs(math.inf, 1, 1)}, "knobs.cycle_time: inf is not within 0 to 10 s"),
        ({"knobs": Knobs(1e-3, -1, 1)}, "knobs.fusion_threshold: -1 is negative"),
    ],
)
def test_what_cannot_be_done_is_told(changes: dict[str, object], told: str) -> None:
    found = list(faults(msgspec.structs.replace(SECTION, **changes), CORES))
    assert any(told in fault for fault in found), found
