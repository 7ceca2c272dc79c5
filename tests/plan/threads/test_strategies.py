"""Strategies 1 to 4 as section III-D states them, on ops whose optimum is known."""

from __future__ import annotations

import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st

from dltune.frameworks.tensorflow import runtime
from dltune.plan.threads.decide import (
    NAMED,
    Strategy,
    candidates,
    per_instance,
    per_type,
    why_no_hyperthreads,
)
from dltune.simulate.machine_transfer import Law
from dltune.simulate.op_time import all_cases
from dltune.simulate.workload import workload
from dltune.system.topology import builtin_machine

KNL = builtin_machine("knl-7250")


def law(optimum: int, work: float) -> Law:
    return Law(0.0, work, work / optimum**2)


def made(*ops, there=KNL):
    nodes = [synthetic.node(f"n_{i}", i) for i in range(len(ops))]
    return workload(synthetic.profile(there, ops, {"train": nodes}))


def two_types():
    return made(
        synthetic.op("Conv2D", law(26, 1.0), KNL, key="small"),
        synthetic.op("Conv2D", law(42, 4.0), KNL, key="large"),
        synthetic.op("MatMul", law(10, 1.0), KNL, key="matmul"),
        synthetic.op("IteratorGetNext", None, KNL, key="data"),
    )


def test_a_strategy_has_one_name() -> None:
    assert str(Strategy()) == "per-op"
    assert str(Strategy(per_type=True, corun=True, smt=True)) == "per-type+co-run+smt"
    assert str(Strategy(per_type=True, corun=True, cap=16)) == "per-type+co-run+cap=16"
    assert str(Strategy(bitwise=True, corun=True, smt=True)) == "bitwise+co-run+smt"
    assert all(str(strategy) == name for name, strategy in NAMED.items())


def test_strategy_1_takes_each_instance_s_own_optimum() -> None:
    choices = per_instance(two_types())
    assert [c and c.threads for c in choices] == [26, 42, 10, None]


def test_strategy_2_takes_the_count_of_the_type_s_most_time_consuming_instance() -> None:
    there = two_types()
    choices = per_type(there, per_instance(there))
    assert [c and c.threads for c in choices] == [42, 42, 10, None]
    small = choices[0]
    assert small is not None
    assert small.seconds == pytest.approx(law(26, 1.0).seconds(42))


def test_strategy_3_offers_three_within_two_threads_the_fastest_first() -> None:
    there = two_types()
    chosen = per_type(there, per_instance(there))
    offered = candidates(there, chosen)
    assert set(offered) == {0, 1, 2}
    for index, ways in offered.items():
        choice = chosen[index]
        assert choice is not None
        assert len(ways) == 3
        assert all(abs(way.threads - choice.threads) <= 2 for way in ways)
        assert [w.seconds for w in ways] == sorted(w.seconds for w in ways)
    # of the small instance, 40 threads are faster than 42
    assert offered[0][0].threads == 40


def test_ops_whose_count_is_held_keep_it() -> None:
    import dataclasses

    there = dataclasses.replace(two_types(), held={0: 5, 1: 100})
    chosen = per_type(there, per_instance(there))
    assert [c and c.threads for c in chosen] == [5, 100, 10, None]
    offered = candidates(there, chosen)
    assert [way.threads for way in offered[0]] == [5]
    # a hundred parts on 68 cores take what 68 take
    assert chosen[1] is not None
    assert chosen[1].seconds == pytest.approx(law(42, 4.0).seconds(68))


def test_strategy_4_needs_a_second_hardware_thread() -> None:
    assert why_no_hyperthreads(KNL) is None
    assert "no core of synthetic" in why_no_hyperthreads(synthetic.machine(4))


def test_tensorflow_s_settings_on_the_paper_s_machine() -> None:
    """Section II-C: by default 272 and 272, recommended 68 and 1."""
    assert (runtime.default_threads(KNL).intra, runtime.default_threads(KNL).inter) == (272, 272)
    assert (runtime.recommended_threads(KNL).intra, runtime.recommended_threads(KNL).inter) == (
        68,
        1,
    )


def test_the_grid_has_powers_of_two_and_the_counts_of_tiles_sockets_and_machine() -> None:
    two_sockets = synthetic.machine(12, tile=3, sockets=2)
    counts = {setting.intra for setting in runtime.thread_grid(two_sockets)}
    assert counts == {1, 2, 3, 4, 6, 8, 12}
    assert len(runtime.thread_grid(two_sockets)) == 49
    assert {setting.intra for setting in runtime.thread_grid(two_sockets, 5)} == {5}


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 3), st.integers(1, 12))
def test_every_choice_exists_on_the_machine(cores, tile, optimum) -> None:
    there = synthetic.machine(cores, tile=tile)
    work = made(synthetic.op("Conv2D", law(optimum, 1.0), there), there=there)
    first = per_instance(work)
    chosen = per_type(work, first)
    for choice in (*first, *chosen, *candidates(work, chosen)[0]):
        assert choice is not None
        assert (choice.threads, choice.placement) in all_cases(there)
