from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from dltune.system.perf.counters import partition

# each event with the counters that can count it
EVENTS = st.lists(st.frozensets(st.integers(0, 3), min_size=1), max_size=6)


def fits(events) -> bool:
    """Slow: tries every way to give each event a counter of its own."""
    return len(events) <= 4 and any(
        all(counter in event for counter, event in zip(counters, events, strict=True))
        for counters in itertools.permutations(range(4), len(events))
    )


def fewest(events) -> int:
    """Slow: tries every way to number the groups."""
    for groups in range(len(events) + 1):
        for numbers in itertools.product(range(groups), repeat=len(events)):
            if all(
                fits([e for e, n in zip(events, numbers, strict=True) if n == group])
                for group in range(groups)
            ):
                return groups
    raise AssertionError


@given(EVENTS)
def test_the_fewest_groups_that_fit(events):
    named = list(enumerate(events))
    found = partition(named, lambda chosen: fits([event for _, event in chosen]))
    assert sorted(e for group in found for e in group) == sorted(named)
    assert all(fits([event for _, event in group]) for group in found)
    assert all(list(group) == sorted(group, key=named.index) for group in found)
    assert len(found) == fewest(events)


@given(st.lists(st.frozensets(st.integers(0, 5), max_size=3), max_size=8))
def test_each_set_is_independent_even_where_there_is_no_matroid(events):
    """No two of a set may share a register: a rule that no counters' assignment explains."""

    def apart(chosen) -> bool:
        registers = [register for _, event in chosen for register in event]
        return len(registers) == len(set(registers))

    named = list(enumerate(events))
    found = partition(named, apart)
    assert sorted(e for group in found for e in group) == sorted(named)
    assert all(apart(group) for group in found)


def test_knights_landing_s_two_counters_beside_its_fixed_ones():
    """24 events of two counters, and cycles and instructions that also have their own."""
    general = [frozenset({0, 1})] * 24
    events = list(enumerate([*general, frozenset({0, 1, 2}), frozenset({0, 1, 3})]))
    found = partition(events, lambda chosen: fits([event for _, event in chosen]))
    assert len(found) == 12
