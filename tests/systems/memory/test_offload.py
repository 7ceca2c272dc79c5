"""What leaves for a file beside what is computed again: all that is read is there, and no more is
held than planned."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from memory_steps import LAYERS, LIVE, MIB, training

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.schemas.machine import Tier
from dltune.schemas.profile import Tensor
from dltune.systems.memory.decide import decide
from dltune.systems.memory.model.profiled_step import measured
from dltune.systems.memory.request import Request

FAST = Tier("file", 1 << 40, 10e9)
SLOW = Tier("file", 1 << 40, 10e6)  # 0.1 s for what an op computes in 10 ms


def most_held(found, section) -> int:
    """By running the order with a set of what is there; each node gives out one tensor."""
    step = measured(found.steps[0])
    place = {name: number for number, name in enumerate(step.graph.names)}
    nodes = [place[section.nodes[at]] for at in section.order]
    size = step.graph.tensors.bytes.tolist()
    reads = step.graph.reads.lists
    there: set[int] = set()
    most = 0
    for at, node in enumerate(nodes):
        for one in section.offloaded:
            tensor = place[section.nodes[one.place]]
            if one.freed == at:
                there.remove(tensor)
            if one.back == at:
                assert tensor not in there
                there.add(tensor)
        assert there.issuperset(reads[node])
        there.add(node)
        most = max(most, sum(size[one] for one in there))
        for one in there.copy():
            # kept until it is read for the last time, or given out or brought back anew
            later = [k for k in range(at + 1, len(nodes)) if one in reads[nodes[k]]]
            anew = [k for k in range(at + 1, len(nodes)) if nodes[k] == one]
            if not later or (anew and anew[0] < later[0]):
                there.discard(one)
    return most


def offloading(budget: int, tier: Tier) -> Request:
    """To a folder that has been measured."""
    request = Request(budget, offload=Path("/somewhere"))
    vars(request)["tier"] = tier
    return request


@pytest.mark.parametrize("room", [3, 4, 6, 8])
@pytest.mark.parametrize("tier", [FAST, SLOW])
def test_what_is_read_is_there_and_the_budget_is_met(room, tier):
    found = training()
    section = decide(found, offloading(LIVE + room * MIB, tier)).section
    assert struct_faults("memory", section) == []
    assert section.folder == ("/somewhere" if section.offloaded else None)
    assert most_held(found, section) == section.peak <= room * MIB
    assert max(section.course) == section.peak


def test_a_fast_file_takes_all_and_a_slow_one_what_would_take_longer():
    """Copies of 0.1 ms are hidden behind ops of 10; those of 100 ms are not."""
    fast = decide(training(), offloading(LIVE + 4 * MIB, FAST)).section
    assert fast.again == 0
    assert fast.waited < 0.01
    assert len(fast.offloaded) >= LAYERS - 4
    slow = decide(training(), offloading(LIVE + 6 * MIB, SLOW)).section
    assert slow.offloaded == ()
    assert slow.again > 0


def test_less_memory_can_be_had_than_by_computing_again():
    least = decide(training()).section.peak
    found = decide(training(), offloading(LIVE + least - MIB, SLOW)).section
    assert found.peak <= least - MIB
    assert found.offloaded
    assert found.waited > 0
    with pytest.raises(UsageError, match=r"too small: 3\.0 MiB of persistent memory plus at least"):
        decide(training(), offloading(LIVE + MIB, SLOW))


def test_with_room_nothing_leaves():
    section = decide(training(), offloading(LIVE + 9 * MIB, FAST)).section
    assert (section.offloaded, section.waited, section.folder) == ((), 0.0, None)


@pytest.mark.parametrize("output", [Tensor("string", MIB), Tensor("float", 1 << 15)])
def test_handles_and_small_tensors_stay(output):
    found = training()
    (step,) = found.steps
    nodes = tuple(msgspec.structs.replace(one, outputs=(output,)) for one in step.nodes)
    small = msgspec.structs.replace(found, steps=(msgspec.structs.replace(step, nodes=nodes),))
    need = decide(small, Request(LIVE + 9 * MIB)).section.peak
    section = decide(small, offloading(LIVE + need * 2 // 3, FAST)).section
    assert section.offloaded == ()
    assert section.again > 0
