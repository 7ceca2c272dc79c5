from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tiered import used

from dltune.schemas.machine import Tier
from dltune.systems.memory.offload import (
    CacheTooSmall,
    FarTiersFull,
    Tiers,
    cached,
    held,
    hidden,
    placed,
    traffic,
)

SLOW = Tier("file", 1 << 20, 2.0, latency=0.1)


@given(used())
def test_blocks_live_from_their_first_use_to_their_last(drawn):
    found, _ = drawn
    assert [row[0] for row in found.at] == found.lives.begin.tolist()
    assert [row[-1] + 1 for row in found.at] == found.lives.end.tolist()
    assert sum(map(len, found.at)) == sum(map(len, found.touched))
    size = found.bytes
    assert found.largest == max(sum(size[one] for one in row) for row in found.touched)


@given(used(), st.integers(0, 9))
def test_what_is_held_fits_and_what_is_used_is_there(drawn, room):
    """Step by step, against each block's own state."""
    found, seconds = drawn
    capacity = found.largest + room
    for swaps in (cached(found, capacity), hidden(found, seconds, capacity, SLOW)):
        assert held(found, swaps).max() <= capacity
        away = np.zeros((len(found.bytes), len(seconds)), bool)
        for swap in swaps:
            assert swap.out < swap.freed <= swap.back <= swap.use
            assert swap.use in found.at[swap.block]
            assert not away[swap.block, swap.freed : swap.back].any()
            away[swap.block, swap.freed : swap.back] = True
        for now, row in enumerate(found.touched):
            assert not away[row, now].any()
        assert held(found, swaps).tolist() == [
            sum(
                size
                for block, size in enumerate(found.bytes)
                if found.lives.begin[block] <= now < found.lives.end[block] and not away[block, now]
            )
            for now in range(len(seconds))
        ]
        assert traffic(found, swaps) == sum(2 * found.bytes[one.block] for one in swaps)
        if found.levels.max() <= capacity:
            assert swaps == []


@given(used())
def test_less_than_a_step_needs_is_too_little(drawn):
    found, seconds = drawn
    with pytest.raises(CacheTooSmall):
        cached(found, found.largest - 1)
    with pytest.raises(CacheTooSmall):
        hidden(found, seconds, found.largest - 1, SLOW)


@given(used(), st.integers(0, 9), st.integers(0, 9))
def test_far_tiers_hold_no_more_than_they_can(drawn, first, second):
    found, _ = drawn
    swaps = cached(found, found.largest)
    assume(swaps)
    tiers = Tiers(found.largest, (Tier("a", first, 2.0), Tier("b", second, 1.0)))
    try:
        done = placed(found, swaps, tiers)
    except FarTiersFull:
        assert first + second < 2 * sum(found.bytes[one.block] for one in swaps)
        return
    assert sorted(one._replace(tier=0) for one in done) == sorted(swaps)
    for number, tier in enumerate(tiers.far):
        for now in range(len(found.touched)):
            there = [one for one in done if one.tier == number and one.out <= now <= one.use]
            assert sum(found.bytes[one.block] for one in there) <= tier.bytes
