from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.systems.memory.model.allocator import BLOCK, HeapPool, PoolExhausted

BLOCKS = 24
REQUESTS = st.lists(st.tuples(st.booleans(), st.integers(0, 9 * BLOCK)), max_size=60)


@given(REQUESTS)
def test_it_takes_the_first_piece_that_is_large_enough(requests):
    """Against a row of blocks that is looked through one by one."""
    pool, row = HeapPool.of(BLOCKS * BLOCK), [-1] * BLOCKS
    for number, (gives_back, size) in enumerate(requests):
        mine = sorted({one for one in row if one >= 0})
        if gives_back and mine:
            gone = mine[size % len(mine)]
            pool.release(gone)
            row = [-1 if one == gone else one for one in row]
        else:
            wanted = max(1, -(-size // BLOCK))
            places = (
                at
                for at in range(BLOCKS - wanted + 1)
                if all(one < 0 for one in row[at : at + wanted])
            )
            at = next(places, None)
            if at is None:
                with pytest.raises(PoolExhausted):
                    pool.allocate(number, size)
            else:
                assert pool.allocate(number, size) == at * BLOCK
                row[at : at + wanted] = [number] * wanted
        runs = "".join("." if one < 0 else "#" for one in row).split("#")
        assert pool.largest == max(map(len, runs)) * BLOCK
        taken = [at for at, one in enumerate(row) if one >= 0]
        assert pool.top == BLOCK * (max(taken) + 1 if taken else 0)


def test_a_pool_of_nothing_says_so():
    with pytest.raises(PoolExhausted, match="1 blocks are wanted, the largest free piece has 0"):
        HeapPool.of(0).allocate(0, 1)
