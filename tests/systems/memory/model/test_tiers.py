from __future__ import annotations

import msgspec
import pytest

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.schemas.machine import Tier
from dltune.system import topology
from dltune.systems.memory.offload import GPUS, HOST, PEER, REMOTE, Tiers, link, with_file

KNL = topology.builtin_machine("knl-7250")


def test_the_papers_links():
    """Section 3.3.2: 8, 10 and 6 GB/s."""
    assert [tier.bandwidth for tier in (HOST, PEER, REMOTE)] == [8e9, 10e9, 6e9]
    far = GPUS["k40c-peers"].far
    assert sorted(far, key=lambda tier: -tier.bandwidth) == list(far)
    assert GPUS["k40c"].near == 12 << 30


def test_tiers_of_a_machine():
    assert Tiers.of(KNL).near == 16 << 30
    assert [tier.name for tier in Tiers.of(KNL).far] == ["DDR4"]
    assert Tiers.of(msgspec.structs.replace(KNL, tiers=())).far == ()
    with pytest.raises(UsageError, match="does not state the size of its memory"):
        Tiers.of(msgspec.structs.replace(KNL, memory=None))


def test_a_file_beside_main_memory():
    made = with_file(100, 1000, 5e8)
    assert (made.near, made.far) == (100, (Tier("file", 1000, 5e8),))
    assert link(made.far[0]).bandwidth == 5e8


def test_a_tier_that_cannot_be_is_told():
    broken = msgspec.structs.replace(KNL, tiers=(Tier("nothing", 0, -1.0, -2.0),))
    assert struct_faults("", broken) == [
        "tiers[0] (nothing).bytes must be above 0, got 0",
        "tiers[0] (nothing).bandwidth must be above 0, got -1.0",
        "tiers[0] (nothing).latency must be at least 0, got -2.0",
    ]
