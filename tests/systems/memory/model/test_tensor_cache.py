"""Algorithm 2, against a list that is looked through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.systems.memory.offload import CacheTooSmall, TensorCache

CAPACITY = 10
SIZES = [3, 1, 4, 2, 5, 3]
LAYERS = st.lists(
    st.tuples(
        st.lists(st.integers(0, len(SIZES) - 1), max_size=4, unique=True),
        st.lists(st.integers(0, len(SIZES) - 1), max_size=2),
    ),
    max_size=20,
)


@given(LAYERS)
def test_it_keeps_what_was_used_last_and_what_is_locked(layers):
    """Each layer locks what is there of what it needs, takes the rest in, and releases some."""
    cache = TensorCache(CAPACITY)
    there: list[int] = []  # the least recently used first
    moved = expected = 0
    for needed, released in layers:
        cache.lock(needed)
        working: set[int] = {one for one in needed if one in there}
        for tensor in needed:
            was = list(there)
            missing = sum(SIZES[one] for one in working | {tensor}) - CAPACITY
            if tensor not in there and missing > 0:
                with pytest.raises(CacheTooSmall) as error:
                    cache.check(tensor, SIZES[tensor])
                assert error.value.missing == missing
                assert list(cache.held) == there
                continue
            found = cache.check(tensor, SIZES[tensor])
            assert found.hit == (tensor in was)
            moved += sum(SIZES[one] for one in found.evicted)
            if tensor in there:
                there.remove(tensor)
            gone = [one for one in there if one not in working]
            while sum(SIZES[one] for one in there) + SIZES[tensor] > CAPACITY:
                expected += SIZES[gone[0]]
                there.remove(gone.pop(0))
            there.append(tensor)
            working.add(tensor)
            assert list(cache.held) == there
            assert not working - set(cache.held)
            assert cache.used == sum(SIZES[one] for one in there) <= CAPACITY
        cache.unlock()
        for tensor in released:
            cache.release(tensor)
            if tensor in there:
                there.remove(tensor)
    assert moved == expected


def test_what_a_layer_works_on_does_not_leave():
    cache = TensorCache(10)
    cache.check(0, 6)
    with pytest.raises(CacheTooSmall, match="2 bytes are missing in addition to the locked"):
        cache.check(1, 6)
    cache.unlock()
    assert cache.check(1, 6) == (False, (0,))
