"""TAC's order of gradients against the paper's algorithm, and what its bins promise."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from parameter_workers import Worker, printed_properties, printed_tac, workers
from transfers import Dag, dags, finishes

from dltune.simulate.overlap import Cost, Partition
from dltune.systems.ranks.allreduce.measurements import Call, Gradient
from dltune.systems.ranks.allreduce.order import Topology, tac, tac_bins, traverse, waits
from dltune.systems.ranks.allreduce.section import Bin

MEGABYTES = Cost(0.0, 1e-9)  # a millisecond each


def of(worker: Worker) -> Topology:
    """Of receives that wait for none."""
    return Topology(tuple(range(len(worker.channel))), (0,) * len(worker.channel))


@given(workers())
def test_gradients_that_are_all_there_are_receives(worker: Worker) -> None:
    count = len(worker.channel)
    found = tac(worker.partition, of(worker), [0] * count, [1] * count)
    assert found == [(one, 1) for one in printed_tac(worker)]


@given(workers(), st.data())
def test_the_best_of_those_that_are_there_goes_next(worker: Worker, data: st.DataObject) -> None:
    """Algorithm 3 once more, a nanosecond of one gradient at a time."""
    count = len(worker.channel)
    ready = data.draw(st.lists(st.integers(0, 12), min_size=count, max_size=count))
    left, times = list(worker.time), dict(enumerate(worker.time[:count]))
    order: list[int] = []
    now = 0
    while times:
        now = max(now, min(ready[one] for one in times))
        direct, impending = printed_properties(worker, set(times), left)
        best = None
        for one in sorted(times):
            if ready[one] > now:
                continue
            if best is not None:
                mine, other = min(direct[best], times[one]), min(direct[one], times[best])
                if (other, -impending[one]) <= (mine, -impending[best]):
                    continue
            best = one
        assert best is not None
        order.append(best)
        now += 1
        times[best] -= 1
        left[best] -= 1
        if not times[best]:
            del times[best]
    found = tac(worker.partition, of(worker), ready, worker.time[:count])
    assert found == [(one, len(list(run))) for one, run in itertools.groupby(order)]


@st.composite
def calls(draw: st.DrawFn) -> tuple[Dag, Call]:
    dag = draw(dags())
    sizes = st.integers(0, 2000)
    return dag, Call(
        0,
        "tape",
        tuple(
            Gradient(node, f"g{node}", "float32", (size,), 4 * size)
            for node, size in ((node, draw(sizes)) for node in dag.places)
        ),
    )


def waiting(call: Call, chance: random.Random) -> Partition:
    """An update of each gradient, and something that waits for all."""
    count = len(call.gradients)
    return Partition(
        np.array(sorted(call.places), np.int32),
        np.zeros(count, np.int64),
        np.zeros(count, np.int32),
        np.vstack((np.eye(count, dtype=np.bool_), np.ones(count, np.bool_)))[: count + (count > 1)],
        np.array([chance.randrange(3000) for _ in range(count + (count > 1))], np.int64),
    )


@given(calls(), st.integers(1, 8000), st.integers(2, 3), st.randoms(use_true_random=False))
def test_no_plan_hangs_or_loses_an_element(
    given: tuple[Dag, Call], threshold: int, ranks: int, chance: random.Random
) -> None:
    dag, call = given
    topology = traverse(dag.inputs, dag.fetches, dag.places)
    ready = [chance.random() * 4e-6 for _ in call.gradients]
    cost = Cost(chance.choice((0.0, 1e-7)), 1e-9)
    for bins in tac_bins(call, topology, ready, waiting(call, chance), cost, threshold):
        for bin_ in bins:
            assert len(bin_.tensors) == 1 or bin_.bytes <= threshold
            if bin_.elements:
                assert bin_.bytes == 4 * (bin_.elements[1] - bin_.elements[0])
                assert len(bin_.tensors) == 1
        for place, gradient in enumerate(call.gradients):
            mine = [bin_.elements for bin_ in bins if place in bin_.tensors]
            ends = [0, *(part[1] if part else gradient.shape[0] for part in mine)]
            assert [part[0] if part else 0 for part in mine] == ends[:-1]
            assert ends[-1] == gradient.shape[0]
        nodes = [[call.gradients[place].node for place in bin_.tensors] for bin_ in bins]
        assert finishes(dag, nodes, ranks, chance)


def planned(
    megabytes: Sequence[int], ready: Sequence[int], updates: Sequence[int]
) -> list[tuple[Bin, ...]]:
    """Of gradients of so many MB, after so many ms; a variable's update takes so many."""
    call = Call(
        0,
        "tape",
        tuple(
            Gradient(node, "g", "float32", (size * 250_000,), size * 1_000_000)
            for node, size in enumerate(megabytes)
        ),
    )
    count = len(megabytes)
    updated = Partition(
        np.arange(count, dtype=np.int32),
        np.zeros(count, np.int64),
        np.zeros(count, np.int32),
        np.eye(count, dtype=np.bool_),
        np.array(updates, np.int64) * 1_000_000,
    )
    topology = Topology(tuple(range(count)), (0,) * count)
    moments = [moment * 1e-3 for moment in ready]
    return list(tac_bins(call, topology, moments, updated, MEGABYTES, 1 << 30))


def whole(found: Sequence[tuple[Bin, ...]]) -> list[tuple[Bin, ...]]:
    return [bins for bins in found if not any(bin_.elements for bin_ in bins)]


def step(bins: Sequence[Bin], ready: Sequence[int], updates: Sequence[int]) -> float:
    """Milliseconds until the last update, when each begins as soon as its gradient has come."""
    link, came = 0.0, {}
    for bin_ in bins:
        link = max(link, *(ready[place] for place in bin_.tensors)) + bin_.bytes / 1e6
        came |= dict.fromkeys(bin_.tensors, link)
    now = float(max(ready))
    for place in sorted(came, key=lambda one: came[one]):
        now = max(now, came[place]) + updates[place]
    return now


def test_what_takes_long_to_update_goes_before_what_does_not() -> None:
    """Both are there when the link is free, and the longer update overlaps with a transfer."""
    sizes, ready, updates = (4, 4, 12), (0, 1, 2), (1, 1, 4)
    best = min(planned(sizes, ready, updates), key=lambda bins: step(bins, ready, updates))
    assert [bin_.tensors for bin_ in best] == [(0,), (2,), (1,)]
    assert step(best, ready, updates) == 4 + 12 + 4 + 1
    as_produced = [Bin((place,), size * 1_000_000) for place, size in enumerate(sizes)]
    assert step(as_produced, ready, updates) == 4 + 4 + 12 + 4


def test_a_large_gradient_makes_way_for_one_that_more_waits_for() -> None:
    """It is there first, and its own update is short."""
    sizes, ready, updates = (50, 10), (0, 10), (1, 20)
    found = planned(sizes, ready, updates)
    best = min(found, key=lambda bins: step(bins, ready, updates))
    assert [bin_.tensors for bin_ in best] == [(0,), (1,), (0,)]
    assert step(best, ready, updates) == 50 + 10 + 1
    assert min(step(bins, ready, updates) for bins in whole(found)) == 50 + 10 + 20


def test_nothing_is_gained_from_pieces_where_all_updates_take_as_long_for_a_byte() -> None:
    sizes, ready, updates = (12, 4, 4), (2, 1, 0), (9, 3, 3)
    found = planned(sizes, ready, updates)
    assert len(whole(found)) < len(found)
    least = min(step(bins, ready, updates) for bins in found)
    assert min(step(bins, ready, updates) for bins in whole(found)) == least


def test_what_waits_by_what_comes_last() -> None:
    ours = Worker((0, 0), ((), (), (0,), (0, 1)), (3, 5, 7, 11)).partition
    assert waits(ours, [0, 1]) == [7, 11]
    assert waits(ours, [1, 0]) == [0, 18]
    assert waits(ours, [0, 1, 0]) == [0, 0, 18]
