"""Hill climbing on curves that are known, against a search that tries everything."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import machine

from dltune.profile.climb import Case, Climb
from dltune.system.topology import ladder, placements

Curve = dict[Case, float]


def cases_of(cores: int, interval: int) -> list[Case]:
    there = machine(cores)
    return [(n, p) for n in ladder(there, interval) for p in placements(there, n)]


def run(
    cases: list[Case],
    curves: dict[str, Curve],
    repeats: int = 1,
    noise: float = 0.0,
    patience: int = 1,
) -> Climb:
    climb = Climb(cases, patience)
    draw = random.Random(1)
    while climb.case is not None:
        for _ in range(repeats):
            for key, curve in curves.items():
                case = climb.wanted(key)
                assert case is not None
                climb.add(key, curve[case] * draw.gauss(1, noise))
        climb.advance()
    return climb


def expected(cases: list[Case], curve: Curve, patience: int) -> tuple[Case | None, set[int]]:
    """Where the climb stops (None: nowhere) and the thread counts it measures: up the ladder until
    so many counts lie behind the best one; and the highest."""
    counts = sorted({n for n, _ in cases})
    best = [min((curve[c], i, c) for i, c in enumerate(cases) if c[0] == n) for n in counts]
    for i in range(len(counts)):
        fastest = min(range(i + 1), key=lambda j: best[j][0])
        if i - fastest >= patience:
            return best[fastest][2], {*counts[: i + 1], counts[-1]}
    return None, set(counts)


curves = st.tuples(st.integers(1, 12), st.integers(1, 5)).flatmap(
    lambda size: st.tuples(
        st.just(cases_of(*size)),
        st.dictionaries(
            st.sampled_from("abcdef"),
            st.fixed_dictionaries(
                {case: st.floats(1e-6, 10, allow_subnormal=False) for case in cases_of(*size)}
            ),
            min_size=1,
        ),
    )
)


@given(curves, st.integers(1, 3))
def test_every_op_stops_where_it_gets_slower_and_keeps_its_best(made, patience):
    cases, ops = made
    climb = run(cases, ops, patience=patience)
    measured: dict[str, set[int]] = {}
    for key, case, samples in climb.samples():
        assert all(s == pytest.approx(ops[key][case]) for s in samples)
        measured.setdefault(key, set()).add(case[0])
    stops = {key: expected(cases, curve, patience) for key, curve in ops.items()}
    assert climb.held() == {k: case for k, (case, _) in stops.items() if case is not None}
    assert measured == {key: counts for key, (_, counts) in stops.items()}
    assert climb.climbing == sum(case is None for case, _ in stops.values())


@given(curves, st.integers(1, 3))
def test_it_never_takes_more_cases_than_there_are_and_ends_when_all_have_stopped(made, patience):
    cases, ops = made
    climb = Climb(cases, patience)
    taken = 0
    while climb.case is not None:
        assert climb.cases_left <= len(cases) - taken
        for key, curve in ops.items():
            wanted = climb.wanted(key)
            assert wanted is not None
            climb.add(key, curve[wanted])
        climb.advance()
        taken += 1
    run_at = set[int]().union(*(expected(cases, c, patience)[1] for c in ops.values()))
    assert taken == sum(n in run_at for n, _ in cases)


def test_every_op_is_measured_on_all_cores():
    cases: list[Case] = [(n, "spread") for n in (1, 2, 3, 4, 5, 6)]
    curve = dict(zip(cases, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], strict=True))
    climb = run(cases, {"op": curve}, patience=2)
    assert [case[0] for _, case, _ in climb.samples()] == [1, 2, 3, 6]
    assert climb.held() == {"op": (1, "spread")}


def test_the_best_placement_of_a_count_counts():
    cases: list[Case] = [(1, "spread"), (2, "spread"), (2, "shared"), (4, "spread"), (4, "shared")]
    curve = dict(zip(cases, [1.0, 1.2, 0.6, 0.7, 0.9], strict=True))
    climb = run(cases, {"op": curve})
    assert climb.held() == {"op": (2, "shared")}


def test_noise_moves_the_stop_by_little():
    """Curves like the paper's: work that divides and a cost for each thread, 2 % of noise."""
    cases = cases_of(32, 2)
    ops = {
        f"best {best}": {(n, p): 1 / n + n / best**2 for n, p in cases} for best in (4, 8, 16, 24)
    }
    climb = run(cases, ops, repeats=9, noise=0.02)
    for key, curve in ops.items():
        found = climb.held().get(key, cases[-1])
        assert curve[found] <= min(curve.values()) * 1.1


def test_an_op_that_did_not_run_at_a_count_climbs_on():
    cases: list[Case] = [(1, "spread"), (2, "spread"), (4, "spread")]
    climb = Climb(cases)
    for seconds in (1.0, None, 2.0):
        if seconds is not None:
            climb.add("op", seconds)
        climb.add("other", 1.0)
        climb.advance()
    assert "op" not in climb.held()
    assert climb.case is None


def test_steps_without_ops_climb_to_the_top():
    climb = Climb(cases_of(2, 1))
    while climb.case is not None:
        climb.advance()
    assert not list(climb.samples())


def test_spread_needs_three_samples():
    climb = Climb(cases_of(2, 1))
    for seconds in (1.0, 1.0):
        climb.add("op", seconds)
        assert climb.spread("op") == float("inf")
    climb.add("op", 1.0)
    assert climb.spread("op") == 0


def test_steps_count_as_a_whole_where_all_their_ops_ran_alike() -> None:
    climb = Climb([(1, "spread"), (2, "shared"), (4, "shared")])
    for seconds in ({"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 1.0}, {"b": 1.0}):
        for key, one in seconds.items():
            climb.add(key, one)
        climb.add_step(7, sum(seconds.values()))
        climb.advance()
    # "a" was slower on two threads than on one, and at four all ops run on all cores again
    steps = dict(climb.steps(7))
    assert steps == {(1, "spread"): [3.0], (2, "shared"): [4.0], (4, "shared"): [1.0]}
    assert list(climb.steps(8)) == []
