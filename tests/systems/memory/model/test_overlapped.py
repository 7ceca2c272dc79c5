"""Copies beside computing, against a slow replay and what must hold of any of them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiered import replayed, used

from dltune.schemas.machine import Tier
from dltune.systems.memory.offload import Swap, Tiers, cached, hidden, overlapped


def tiers(bandwidth: float, latency: float = 0.0) -> Tiers:
    return Tiers(0, (Tier("far", 1 << 30, bandwidth, latency),))


@st.composite
def any_swaps(draw, found):
    """Between two uses of a block, whenever they may."""
    swaps = []
    for block, row in enumerate(found.at):
        for before, use in itertools.pairwise(row):
            if use > before and draw(st.booleans()):
                freed = draw(st.integers(before + 1, use))
                back = draw(st.integers(freed, use))
                swaps.append(Swap(block, before, freed, back, use, draw(st.integers(0, 1))))
    return swaps


@given(used(), st.data())
def test_a_step_takes_as_long_as_a_slow_replay(drawn, data):
    found, seconds = drawn
    swaps = data.draw(any_swaps(found))
    both = Tiers(0, (Tier("near", 99, 3.7), Tier("far", 99, 1.3, latency=0.11)))
    made = overlapped(found, seconds, swaps, both)
    assert made.seconds == pytest.approx(replayed(found, seconds, swaps, both))


@given(used(), st.integers(0, 4), st.data())
def test_what_must_hold_of_any_copies(drawn, room, data):
    found, seconds = drawn
    capacity = found.largest + room
    swaps = data.draw(
        st.sampled_from(
            [cached(found, capacity), hidden(found, seconds, capacity, tiers(1.7).far[0])]
        )
    )
    before = None
    for bandwidth in (0.3, 1.1, 2.9, 11.3, 1e15):
        made = overlapped(found, seconds, swaps, tiers(bandwidth))
        one_way = made.traffic / 2 / bandwidth
        assert made.seconds >= max(made.computing, one_way) * (1 - 1e-9)
        assert made.stall == pytest.approx(made.seconds - made.computing, abs=1e-9)
        assert made.seconds <= made.computing + 2 * one_way + 1e-9
        assert before is None or made.seconds <= before * (1 + 1e-9)
        before = made.seconds
    assert made.seconds == pytest.approx(sum(seconds))  # as fast as no link


@given(used())
def test_nothing_that_leaves_takes_no_time(drawn):
    found, seconds = drawn
    made = overlapped(found, seconds, [], tiers(1.0))
    assert (made.traffic, made.stall) == (0, pytest.approx(0.0, abs=1e-9))
    assert made.start == pytest.approx([0.0, *itertools.accumulate(seconds)][:-1])


@given(used(), st.integers(0, 4))
def test_a_fuller_near_tier_is_no_faster(drawn, room):
    """The cache's copies lie between two steps: they wait for nothing but each other."""
    found, seconds = drawn
    swaps = cached(found, found.largest + room)
    made = overlapped(found, seconds, swaps, tiers(1.3))
    freed = {one.freed for one in swaps}
    used_at = {one.use for one in swaps}
    size = found.bytes
    waits = sum(
        sum(size[one.block] for one in swaps if one.freed == now) / 1.3
        + sum(size[one.block] for one in swaps if one.use == now) / 1.3
        for now in freed | used_at
    )
    assert made.stall == pytest.approx(waits)
