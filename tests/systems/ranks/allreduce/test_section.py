"""A plan's section on Horovod is checked whole, each fault by its path."""

from __future__ import annotations

import math

import msgspec
import pytest

from dltune.base.documents import struct_faults
from dltune.schemas.plan import Uniform
from dltune.systems.ranks.allreduce.section import (
    AllreducePlan,
    Bin,
    Knobs,
    Order,
    RankCores,
    Sleeps,
    core_faults,
)

CORES = 4
SECTION = AllreducePlan(
    report="",
    controller="mpi",
    ranks=2,
    local=2,
    cores=(RankCores((0,), (0,), (1,), (0, 1)), RankCores((2,), (2,), (3,), (2, 3))),
    threads=Uniform(1, 2),
    orders=(Order(((3, 4), (4,)), ("float32",) * 2, (Bin((1,), 16), Bin((0,), 48))),),
    sleeps=Sleeps(30e-6, None, 0.05),
    knobs=Knobs(1e-3, 1 << 26, 1024),
    yield_when_idle=False,
    predictions=(),
    reasons=(),
)


def faults(section: AllreducePlan) -> list[str]:
    return [*struct_faults("allreduce", section), *core_faults(section, CORES)]


def bins(*found: Bin) -> dict[str, object]:
    return {"orders": (Order(((3, 4), (4,)), ("float32",) * 2, found),)}


def test_a_good_section() -> None:
    assert faults(SECTION) == []
    pieces = bins(Bin((0,), 20, (0, 5)), Bin((1,), 16), Bin((0,), 28, (5, 12)))
    assert faults(msgspec.structs.replace(SECTION, **pieces)) == []
    bare = dict.fromkeys(("cores", "threads", "orders", "sleeps", "knobs"))
    assert faults(msgspec.structs.replace(SECTION, **bare)) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ranks": 0}, "allreduce.ranks must be at least 1, got 0"),
        ({"local": 3}, "allreduce.local must be at most 2 (the total number of ranks), got 3"),
        (
            {"cores": (RankCores((4,), (0,), (1,), (1,)),) * 2},
            "allreduce.cores[0].background must be at least 0 and below 4 (the",
        ),
        ({"threads": Uniform(0, 2)}, "allreduce.threads.intra must be at least 1, got 0"),
        (
            bins(Bin((0,), 48)),
            "allreduce.orders[0].bins must contain each of the 2 gradients exactly once",
        ),
        (
            bins(Bin((0, 1), 64), Bin((0,), 48)),
            "bins must contain each of the 2 gradients exactly once",
        ),
        (bins(Bin((0,), 48), Bin((1,), 16), Bin((2,), 8)), "each of the 2 gradients exactly once"),
        (bins(Bin((1,), 16), Bin((0,), 48, (0, 11))), "all its elements in consecutive pieces"),
        (
            bins(Bin((0,), 28, (5, 12)), Bin((0,), 20, (0, 5)), Bin((1,), 16)),
            "all its elements in consecutive pieces",
        ),
        (
            bins(Bin((0,), 28, (0, 6)), Bin((1,), 16), Bin((0,), 28, (5, 12))),
            "all its elements in consecutive pieces",
        ),
        (
            bins(Bin((0, 1), 36, (0, 4)), Bin((0,), 32, (4, 12))),
            "bins[0].elements must belong to one tensor, got 2",
        ),
        (bins(Bin((0, 1), 64), Bin((), 0)), "bins[1].tensors must not be empty"),
        (bins(Bin((0, 1), -1)), "bins[0].bytes must be at least 0, got -1"),
        ({"sleeps": Sleeps(2.0, None)}, "between_tests must be above 0 and at most 1 s, got 2.0"),
        ({"sleeps": Sleeps(None, 0)}, "agree_every must be at least 1, got 0"),
        ({"sleeps": Sleeps(None, None, 0.0)}, "rest must be above 0 and at most 1 s, got 0.0"),
        ({"sleeps": Sleeps(None, None, math.nan)}, "rest must be above 0 and at most 1 s, got nan"),
        (
            {"sleeps": Sleeps(None, 1, 0.05)},
            "rest must be null when the ranks agree on the shortest sleep",
        ),
        ({"controller": "gloo"}, "allreduce.sleeps must be null with gloo, which blocks"),
        ({"knobs": Knobs(math.inf, 1, 1)}, "knobs.cycle_time must be between 0 and 10 s, got inf"),
        ({"knobs": Knobs(1e-3, -1, 1)}, "knobs.fusion_threshold must be at least 0, got -1"),
    ],
)
def test_what_cannot_be_done_is_told(changes: dict[str, object], told: str) -> None:
    found = faults(msgspec.structs.replace(SECTION, **changes))
    assert any(told in fault for fault in found), found
