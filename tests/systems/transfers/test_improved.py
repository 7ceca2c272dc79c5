"""dltune's order of receives against the paper's."""

from __future__ import annotations

from hypothesis import given, settings
from parameter_workers import Worker, workers

from dltune.simulate.overlap import Bounds, makespan, tac, tic
from dltune.systems.transfers.decide import improved


@given(workers(most=7, channels=2))
@settings(max_examples=50)
def test_ours_is_never_worse_than_the_papers_and_within_the_bounds(worker: Worker):
    ours = worker.partition
    order = improved(ours, 300)
    assert sorted(order) == list(range(len(ours)))
    length = makespan(ours, order)
    assert length <= min(makespan(ours, tac(ours)), makespan(ours, tic(ours)))
    assert 0 <= Bounds.of(ours).efficiency(length) <= 1
    assert order == improved(ours, 300)
