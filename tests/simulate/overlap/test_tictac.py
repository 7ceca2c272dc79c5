"""Orders of receives against the paper's algorithms as printed, its examples, and exact ones."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from exact_receive_order import optimal
from hypothesis import given
from hypothesis import strategies as st
from parameter_workers import Worker, printed_properties, printed_tac, printed_tic, workers

from dltune.simulate.engine import CoreSet, FifoWork, Graph, Link
from dltune.simulate.overlap import NEVER, Bounds, Outstanding, makespan, partition, tac, tic
from dltune.simulate.step_graph import CSR

# Figure 1(a): op1 needs recv1, op2 needs both
TOY = Worker((0, 0), ((), (), (0,), (1, 2)), (3, 5, 7, 11))
# Figure 4(a): two branches of their own
BRANCHES = Worker((0, 0), ((), (), (0,), (1,)), (4, 6, 5, 9))
# Figure 4(b): A and B let the first op run, C the second, D the third
JOINS = Worker((0, 0, 0, 0), ((), (), (), (), (0, 1), (2, 4), (3, 5)), (1, 1, 1, 1, 2, 2, 2))


def test_the_properties_of_figure_1a():
    found = Outstanding(TOY.partition).properties()
    assert found.direct.tolist() == [7, 0]
    assert found.impending.tolist() == [8, 8]


def test_the_first_receive_of_figure_1a_goes_first():
    ours = TOY.partition
    assert tac(ours) == [0, 1]
    assert makespan(ours, [0, 1]) == 3 + 7 + 11  # op1 while recv2 travels
    assert makespan(ours, [1, 0]) == 5 + 3 + 7 + 11  # nothing overlaps


def test_case_1_takes_the_order_with_the_shorter_makespan():
    """Equation 6 is derived from it; the comparison as Algorithm 3 prints it takes the other."""
    ours = BRANCHES.partition
    first, last = makespan(ours, [0, 1]), makespan(ours, [1, 0])
    assert (first, last) == (4 + 6 + 9, 6 + 9 + 5)
    assert tac(ours) == [0, 1]


def test_case_2_takes_those_first_that_let_an_op_run_soonest():
    found = Outstanding(JOINS.partition).properties()
    assert found.direct.tolist() == [0, 0, 0, 0]
    assert found.impending.tolist() == [2, 2, 3, 4]
    assert tac(JOINS.partition) == [0, 1, 2, 3]
    assert tic(JOINS.partition) == [0, 1, 2, 3]


def test_receives_that_no_op_needs_with_others_come_last_in_tic():
    worker = Worker((0, 0, 0), ((), (), (), (0,), (1, 2)), (1, 1, 1, 1, 1))
    assert Outstanding(worker.partition).properties().impending[0] == NEVER
    assert tic(worker.partition) == [1, 2, 0]


def test_transfers_over_two_channels_go_side_by_side():
    worker = Worker((0, 1, 0), ((), (), (), (0, 1), (2,)), (4, 6, 1, 2, 3))
    found = Outstanding(worker.partition).properties()
    assert found.impending.tolist()[:2] == [6, 6]
    assert makespan(worker.partition, [0, 1, 2]) == (4 + 1) + 3 + 2
    assert Bounds.of(worker.partition) == Bounds(4 + 6 + 1 + 2 + 3, 6)


@given(workers())
def test_algorithms_1_to_3_as_printed(worker: Worker):
    ours = worker.partition
    direct, impending = printed_properties(worker, set(range(len(ours))), worker.time)
    found = Outstanding(ours).properties()
    assert found.direct.tolist() == [direct[r] for r in range(len(ours))]
    assert [v if v < NEVER else None for v in found.impending.tolist()] == [
        impending[r] if impending[r] < float("inf") else None for r in range(len(ours))
    ]
    assert tic(ours) == printed_tic(worker)
    assert tac(ours) == printed_tac(worker)


@given(workers(channels=3))
def test_the_same_over_several_channels(worker: Worker):
    assert tic(worker.partition) == printed_tic(worker)
    assert tac(worker.partition) == printed_tac(worker)


@given(workers(channels=2), st.randoms(use_true_random=False))
def test_a_makespan_is_what_the_simulator_takes(worker: Worker, chance):
    """One core, a link of one transfer at a time for each channel, receives by their priority."""
    receives = len(worker.channel)
    order = list(range(receives))
    chance.shuffle(order)
    channels = max(worker.channel) + 1
    where = np.array([1 + c for c in worker.channel] + [0] * (len(worker.before) - receives))
    op = np.array([-1] * receives + list(range(len(worker.before) - receives)), np.int32)
    priority = np.zeros(len(worker.before))
    priority[order] = range(receives)
    cores = CoreSet([FifoWork(t, 1.0, 1) for t in worker.time[receives:]], 1, 1)
    done = Graph(
        CSR.of(worker.before).transposed(len(worker.before)), op, np.ones(len(worker.before))
    ).on(
        [cores],
        [Link(1.0, by_priority=True)] * channels,
        where.astype(np.int32),
        np.array([*worker.time[:receives], *([0] * (len(worker.before) - receives))], np.float64),
        priority,
    )
    assert makespan(worker.partition, order) == pytest.approx(done.makespan)


@given(workers(most=5))
def test_no_order_is_shorter_than_the_optimal_one(worker: Worker):
    ours = worker.partition
    every = itertools.permutations(range(len(ours)))
    assert makespan(ours, optimal(ours)) == min(makespan(ours, order) for order in every)


def test_exact_orders_are_refused_where_there_are_too_many():
    worker = Worker((0,) * 21, ((),) * 21, (1,) * 21)
    with pytest.raises(ValueError, match="at most 20"):
        optimal(worker.partition)


def test_a_cycle_is_refused():
    worker = Worker((0,), ((), (2,), (1,)), (1, 1, 1))
    with pytest.raises(ValueError, match="2 nodes wait"):
        partition(worker.graph, {0: 0}, [0.0] * 3)
