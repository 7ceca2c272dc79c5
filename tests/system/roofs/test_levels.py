from __future__ import annotations

from dltune.system.roofs.measure import levels, room
from dltune.system.topology import local

KIB, MIB = 2**10, 2**20


def test_half_of_each_cache_and_beyond_all_of_them(xeon):
    found = {level.name: level for level in levels(local(xeon.root), xeon.root)}
    assert list(found) == ["L1", "L2", "L3", "memory"]
    assert (found["L1"].one, found["L1"].each) == (16 * KIB, (16 * KIB,) * 16)
    assert found["L1"].bytes == 16 * 32 * KIB
    assert found["L2"].one == 512 * KIB
    assert found["memory"].bytes is None
    assert found["memory"].one == 4 * 25344 * KIB
    assert sum(found["memory"].each) == 4 * 2 * 25344 * KIB


def test_a_part_of_the_last_level_that_is_not_much_larger_comes_on_top_of_the_one_before(xeon):
    """A core of eight has 3168 KiB of L3 beside its 1024 of L2: half of it would lie in L2."""
    (l3,) = (level for level in levels(local(xeon.root), xeon.root) if level.name == "L3")
    assert l3.one == 25344 // 2 * KIB
    assert l3.each == ((1024 + 3168 // 2) * KIB,) * 16
    assert l3.bytes == 2 * 25344 * KIB


def test_cores_of_one_complex_share_its_cache(epyc):
    found = {level.name: level for level in levels(local(epyc.root), epyc.root)}
    assert found["L3"].bytes == 4 * 16 * MIB
    assert found["L3"].each == (2 * MIB,) * 16


def test_a_machine_that_tells_of_no_cache_has_memory_alone(tree):
    tree.machine([(0,), (1,)])
    (memory,) = levels(local(tree.root), tree.root)
    assert memory.name == "memory"
    assert memory.one > 0
    assert len(memory.each) == 2


def test_room_is_what_the_largest_level_takes(xeon):
    found = levels(local(xeon.root), xeon.root)
    needed = room(found)
    assert needed[0] == 4 * 25344 * KIB, "the first core is also alone"
    assert set(needed[1:]) == {4 * 2 * 25344 * KIB // 16}
