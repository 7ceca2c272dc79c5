"""The native engine against the slow oracle, and against itself."""

from __future__ import annotations

import pytest
from parallelism_cases import random_case
from parallelism_native import by_name, engine, gathered
from parallelism_oracle import makespan, simulated, tasks, transferred

from dltune.systems.parallelism.model.engine import METHODS, MOVES, Chain, Moves

CASES, PROVED = 400, 10_000


def equal(seed: int) -> None:
    """Whole, incremental and delta simulation to the last task of what the oracle says."""
    case = random_case(seed)
    ours = engine(case)
    strategy = case.strategy
    assert ours.simulate(strategy) == ours.again()
    for operator, choice in [(-1, 0), *case.moves]:
        if operator >= 0:
            ours.simulate(strategy)
            by_delta = ours.delta(operator, choice)
            delta = by_name(ours.events(of_delta=True))
            ours.simulate(strategy)
            incremental = ours.change(operator, choice)
            strategy = (*strategy[:operator], choice, *strategy[operator + 1 :])
            assert incremental == by_delta
            assert by_name(ours.events()) == delta
        every = tasks(case.graph, case.chosen(strategy), case.devices)
        theirs = simulated(every)
        if operator >= 0:
            assert by_name(ours.events()) == gathered(theirs)
        assert ours.simulate(strategy) == makespan(theirs)
        assert by_name(ours.events()) == gathered(theirs)
        totals = ours.totals()
        assert totals.tasks == len(every)
        assert abs(totals.bytes - transferred(every)) <= len(every)  # each hop is rounded down
        assert totals.load * 1e9 <= makespan(theirs) + 0.5


def test_all_ways_to_simulate_are_those_of_the_oracle() -> None:
    for seed in range(CASES):
        equal(seed)


@pytest.mark.proof
def test_ten_thousand_cases() -> None:
    for seed in range(CASES, PROVED):
        equal(seed)


@pytest.mark.parametrize("moves", MOVES)
def test_a_chain_is_the_same_however_its_proposals_are_simulated(moves: Moves) -> None:
    for seed in range(60):
        case = random_case(seed)
        ours = engine(case)
        walks = [
            ours.walk(
                case.strategy,
                Chain(seed, temperature=0.1, proposals=60, moves=moves, method=method),
            )
            for method in METHODS
        ]
        assert (
            len({(w.best, w.best_time, w.current, w.current_time, w.accepted) for w in walks}) == 1
        )
        first = walks[0]
        assert first.best_time == ours.simulate(first.best)
        assert first.current_time == ours.simulate(first.current)
