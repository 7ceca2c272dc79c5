"""How much deeper a network could be, with a plan and without, against the network made so deep."""

from __future__ import annotations

import msgspec
import pytest
from block_steps import Network

from dltune.base.errors import UsageError
from dltune.schemas.profile import Memory, Profile
from dltune.systems.memory.decide import decide
from dltune.systems.memory.deepest import deepest

LIVE, EACH = 1000, 100 + 101 + 102 + 3 * 8


def profile(blocks: int, *, grows: int = 0) -> Profile:
    found = Network(blocks, 3, True, None, grows).profile
    return msgspec.structs.replace(found, memory=Memory(LIVE + blocks * EACH, 0))


def needed(blocks: int, *, planned: bool) -> int:
    """In all, by the network itself; planned: at least."""
    section = decide(profile(blocks)).section
    return section.live + (section.peak if planned else section.before)


def test_the_deepest_that_fits_is_found():
    budget = needed(9, planned=False)
    found = deepest(profile(4), budget)
    assert found.blocks == 4
    assert found.unplanned is not None
    assert found.unplanned.blocks == 9
    assert found.unplanned.live + found.unplanned.peak == budget
    deep = found.planned
    assert deep.blocks > 9
    assert deep.live == LIVE + deep.blocks * EACH
    assert deep.live + deep.peak <= budget < needed(deep.blocks + 1, planned=True)
    assert deep.added > 0
    assert deep.seconds == decide(profile(deep.blocks)).section.seconds


def test_what_only_fits_planned_is_told_as_such():
    found = deepest(profile(4), needed(4, planned=True))
    assert found.unplanned is None
    assert found.planned.blocks == 4


def test_no_deeper_one_is_tried_than_can_be_planned(monkeypatch):
    monkeypatch.setattr("dltune.systems.memory.deepest.MOST_NODES", 150)
    found = deepest(profile(4), 2**40)
    assert found.unplanned is not None
    assert found.unplanned.blocks == found.planned.blocks == found.tried < 10


def test_networks_whose_blocks_grow_are_refused():
    with pytest.raises(UsageError, match="the step has no identical blocks in sequence"):
        deepest(profile(4, grows=8), 2**30)
