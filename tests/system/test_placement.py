from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.base.errors import UsageError
from dltune.schemas.machine import SCHEMA, Core, Machine
from dltune.system.topology import builtin_machine, cores_for, default_interval, ladder, placements

KNL = builtin_machine("knl-7250")


def machine(*tiles: int) -> Machine:
    """A machine with tiles of these sizes, one socket."""
    numbers = itertools.count()
    cores = [
        Core((next(numbers),), tile, 0, 0) for tile, size in enumerate(tiles) for _ in range(size)
    ]
    return Machine(SCHEMA, "a machine", tuple(cores))


machines = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(lambda tiles: machine(*tiles))


def shape(on: Machine, cores: tuple[int, ...]) -> list[int]:
    return sorted(Counter(on.cores[core].tile for core in cores).values())


# section III-B: 34 cases with spread threads, 34 with pairs on tiles, 68 in all


def test_the_papers_68_cases():
    cases = [(n, placement) for n in range(1, 69) for placement in placements(KNL, n)]
    assert [n for n, placement in cases if placement == "spread"] == list(range(1, 35))
    assert [n for n, placement in cases if placement == "shared"] == list(range(2, 69, 2))


def test_the_paper_places_pairs_on_tiles_or_one_thread_on_each():
    assert cores_for(KNL, 4, "shared") == (0, 1, 2, 3)
    assert cores_for(KNL, 4, "spread") == (0, 2, 4, 6)
    assert cores_for(KNL, 34, "spread") == tuple(range(0, 68, 2))


def test_one_tile_has_no_spread_case():
    assert [placements(machine(4), n) for n in (1, 2, 3, 4)] == [
        ("spread",),
        ("shared",),
        ("shared",),
        ("shared",),
    ]


def test_tiles_of_one_core_have_no_shared_case():
    assert {placements(machine(1, 1, 1), n) for n in (1, 2, 3)} == {("spread",)}


def test_two_sockets_differ_until_both_are_nearly_full():
    on = machine(4, 4)
    assert placements(on, 2) == ("spread", "shared")
    assert placements(on, 6) == ("spread", "shared")
    assert placements(on, 7) == ("shared",)
    assert cores_for(on, 6, "shared") == (0, 1, 2, 3, 4, 5)
    assert cores_for(on, 6, "spread") == (0, 1, 2, 4, 5, 6)


def test_uneven_tiles():
    on = machine(2, 2, 1)
    assert [placements(on, n) for n in range(1, 6)] == [
        ("spread",),
        ("spread", "shared"),
        ("spread", "shared"),
        ("spread", "shared"),
        ("shared",),
    ]


@given(machines)
def test_the_whole_machine_always_has_a_placement(on):
    assert placements(on, len(on.cores))


@given(machines, st.data())
def test_placements_differ_in_shape(on, data):
    threads = data.draw(st.integers(1, len(on.cores)))
    shapes = [shape(on, cores_for(on, threads, p)) for p in placements(on, threads)]
    assert len(shapes) == len({tuple(s) for s in shapes})


@given(machines, st.data())
def test_shared_takes_the_fewest_tiles_and_spread_piles_up_the_least(on, data):
    """Against all choices of free cores."""
    free = data.draw(
        st.sets(st.sampled_from(range(len(on.cores))), min_size=1, max_size=len(on.cores))
    )
    threads = data.draw(st.integers(1, len(free)))
    shapes = [shape(on, cores) for cores in itertools.combinations(sorted(free), threads)]
    shared = cores_for(on, threads, "shared", free)
    spread = cores_for(on, threads, "spread", free)
    for cores in (shared, spread):
        assert len(set(cores)) == threads
        assert set(cores) <= free
        assert list(cores) == sorted(cores)
    assert len(shape(on, shared)) == min(len(s) for s in shapes)
    assert max(shape(on, spread)) == min(max(s) for s in shapes)
    assert len(shape(on, spread)) == max(len(s) for s in shapes)


def test_a_small_group_of_free_cores_is_used_before_a_large_one_is_broken():
    on = machine(4, 4)
    assert cores_for(on, 2, "shared", among={0, 1, 2, 3, 6, 7}) == (6, 7)


def test_spread_prefers_idle_tiles():
    on = machine(2, 2, 2)
    assert cores_for(on, 2, "spread", among={1, 2, 3, 4, 5}) == (2, 4)


def test_shared_stays_on_a_socket():
    cores = [Core((cpu,), cpu // 2, 0 if cpu // 2 in (1, 2) else 1, 0) for cpu in range(8)]
    on = Machine(SCHEMA, "two sockets", tuple(cores))
    assert cores_for(on, 4, "shared", among={2, 3, 4, 5, 6, 7}) == (2, 3, 4, 5)
    assert cores_for(on, 4, "shared", among={0, 1, 2, 3, 4, 6, 7}) == (0, 1, 6, 7)


@pytest.mark.parametrize("threads", [0, -1, 69])
def test_impossible_thread_counts(threads):
    with pytest.raises(UsageError, match=str(threads)):
        placements(KNL, threads)
    with pytest.raises(UsageError, match=str(threads)):
        cores_for(KNL, threads, "shared")


def test_too_few_free_cores():
    with pytest.raises(UsageError, match="thread count 3 exceeds the 2 free cores"):
        cores_for(KNL, 3, "spread", among={1, 2})


# section III-C


def test_ladder_of_the_paper():
    assert ladder(KNL, 4)[:4] == (1, 4, 8, 12)
    assert ladder(KNL, 4)[-1] == 68
    assert ladder(KNL, 16) == (1, 16, 32, 48, 64, 68)
    assert ladder(KNL, 2) == (1, *range(2, 69, 2))


def test_ladder_leaves_out_counts_that_cannot_be_placed():
    assert ladder(KNL, 1) == (*range(1, 35), *range(36, 69, 2))


@given(machines, st.integers(1, 20))
def test_ladder_begins_with_one_and_ends_with_all(on, interval):
    counts = ladder(on, interval)
    assert counts[0] == 1
    assert counts[-1] == len(on.cores)
    assert list(counts) == sorted(set(counts))


def test_intervals():
    assert default_interval(KNL) == 4
    assert default_interval(machine(2)) == 1
    with pytest.raises(UsageError, match="at least 1"):
        ladder(KNL, 0)
