"""Bins: against all partitions there are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st
from transfers import concurrent

from dltune.simulate.overlap import Cost, partitions

Bins = tuple[tuple[int, ...], ...]


def every(n: int) -> Iterator[Bins]:
    """Every way to cut 0..n-1 into runs."""
    for cuts in itertools.product((False, True), repeat=n - 1):
        bounds = [0, *(k + 1 for k, cut in enumerate(cuts) if cut), n]
        yield tuple(tuple(range(a, b)) for a, b in itertools.pairwise(bounds))


def end(
    bins: Bins,
    sizes: Sequence[int],
    ready: Sequence[float],
    cost: Cost,
    waits: Sequence[float] | None = None,
) -> float:
    """Of the last transfer, and of what waits for each ID and those before it."""
    now, came = 0.0, []
    for members in bins:
        now = max(now, *(ready[k] for k in members)) + cost.latency
        now += cost.per_byte * sum(sizes[k] for k in members)
        came += [now] * len(members)
    done = max(ready)
    for k, seconds in enumerate(waits or ()):
        done = max(done, came[k]) + seconds
    return max(now, done)


@st.composite
def dependencies(draw: st.DrawFn) -> tuple[int, ...]:
    """For each ID the set of those before it that it depends on, as bits."""
    n = draw(st.integers(1, 8))
    before: list[int] = []
    for k in range(n):
        mask = 0
        for parent in draw(st.lists(st.integers(0, k - 1), max_size=2)) if k else ():
            mask |= 1 << parent | before[parent]
        before.append(mask)
    return tuple(before)


@given(dependencies(), st.data())
def test_the_best_of_all_partitions(before: tuple[int, ...], data: st.DataObject) -> None:
    n = len(before)
    sizes = data.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))
    ready = data.draw(st.lists(st.floats(0, 10), min_size=n, max_size=n))
    cost = Cost(data.draw(st.sampled_from([0.0, 0.25, 2.0])), 0.5)
    threshold = data.draw(st.integers(1, 30))
    waits = data.draw(st.none() | st.lists(st.floats(0, 5), min_size=n, max_size=n))
    alone = data.draw(st.sets(st.integers(0, n - 1), max_size=2))
    allowed: dict[int, float] = {}
    for bins in every(n):
        fits = all(
            (len(one) == 1 or (sum(sizes[k] for k in one) <= threshold and not alone & set(one)))
            and all(concurrent(before, a, b) for a, b in itertools.combinations(one, 2))
            for one in bins
        )
        if fits:
            best = allowed.get(len(bins), float("inf"))
            allowed[len(bins)] = min(best, end(bins, sizes, ready, cost, waits))
    found = partitions(before, sizes, ready, cost, threshold, n, waits, alone)
    assert [len(bins) for bins in found] == sorted(allowed)
    for bins in found:
        assert list(itertools.chain(*bins)) == list(range(n))
        for one in bins:
            assert len(one) == 1 or sum(sizes[k] for k in one) <= threshold
            assert len(one) == 1 or not alone & set(one)
            assert all(concurrent(before, a, b) for a, b in itertools.combinations(one, 2))
        assert abs(end(bins, sizes, ready, cost, waits) - allowed[len(bins)]) < 1e-9


def test_bins_travel_while_the_rest_is_computed() -> None:
    """Gradients a second apart, each a second on its way: one bin ends at 8, two at 6."""
    one, two, *_ = partitions((0, 0, 0, 0), [1] * 4, [1.0, 2.0, 3.0, 4.0], Cost(0.0, 1.0), 10)
    assert one == ((0, 1, 2, 3),)
    assert two == ((0, 1, 2), (3,)) or two == ((0, 1), (2, 3))
    assert end(two, [1] * 4, [1.0, 2.0, 3.0, 4.0], Cost(0.0, 1.0)) == 6.0


def test_no_transfers_no_bins() -> None:
    assert partitions([], [], [], Cost(1.0, 1.0), 1) == []
