from __future__ import annotations

import pytest

from dltune.plan.threads.fitted import Handling, fit
from dltune.schemas.machine import SCHEMA, Core, Machine
from dltune.schemas.plan import Candidate, OpPlan, Prediction, Threads, Uniform


def machine(cores: int) -> Machine:
    return Machine(SCHEMA, "test", tuple(Core((i,), i // 2, 0, 0) for i in range(cores)))


def plan(*ops: OpPlan, corun: bool = False) -> Threads:
    return Threads(
        "per-type", Uniform(4, 2), corun, False, 1e-5, ops, (Prediction("per-type", 1, 1, 1),)
    )


def entry(key: str, threads: int, cores=None, serial: float = 1e-3, placement="spread") -> OpPlan:
    ways = (Candidate(threads, placement, 1e-3),)
    return OpPlan(key, threads, placement, 1e-3, serial, cores, ways)


def test_named_cores_are_kept_and_placements_become_cores():
    fitted = fit(
        plan(entry("a", 2), entry("b", 2, placement="shared"), entry("c", 1, (3,))), machine(4)
    )
    orders = fitted.orders(1, ["abc"])
    assert orders.ops["c"] == (1, (3,))
    threads, cores = orders.ops["a"]
    assert threads == 2
    assert {core // 2 for core in cores} == {0, 1}
    assert {core // 2 for core in orders.ops["b"][1]} in ({0}, {1})


def test_a_share_keeps_how_work_is_divided_and_cuts_where_it_runs():
    fitted = fit(plan(entry("a", 4), entry("b", 2, (2, 3))), machine(2))
    assert fitted.orders(1, []).ops == {"a": (4, (0, 1))}
    assert fitted.dropped == ("b",)
    assert fitted.uniform == Uniform(2, 2)


def test_small_ops_are_left_alone():
    orders = fit(plan(entry("a", 1, serial=1e-6)), machine(4)).orders(1, [])
    assert not orders.ops


def test_co_running_leaves_the_cores_to_admission_unless_the_plan_names_them():
    fitted = fit(plan(entry("a", 2), entry("b", 1, (0,)), corun=True), machine(4))
    orders = fitted.orders(1, [])
    assert set(orders.corun) == {"a"}
    assert orders.corun["a"][1].threads == 2
    assert set(orders.ops) == {"b"}
    assert "admission\t1" in orders.lines()


@pytest.mark.parametrize("corun", [False, True])
def test_what_is_ordered_is_what_is_told_of_each_op(corun):
    """The handling of every op against the orders, by the rules of docs/explanation/run.md."""
    ops = [
        entry(f"{serial}{cores}", 1, cores, serial=serial)
        for serial in (1e-6, 1e-5, 1e-3)
        for cores in (None, (0,), (3,))
    ]
    fitted = fit(plan(*ops, corun=corun), machine(2))
    orders = fitted.orders(1, [])
    told = {op.key: fitted.handling(op) for op in ops}
    assert {key for key, one in told.items() if one is Handling.ADMITTED} == set(orders.corun)
    assert {key for key, one in told.items() if one is Handling.PLACED} == set(orders.ops)
    for op in ops:
        if op.cores == (3,):
            assert told[op.key] is Handling.DROPPED
        elif op.serial < 1e-5:
            assert told[op.key] is Handling.SMALL
        else:
            waits = corun and op.cores is None
            assert told[op.key] is (Handling.ADMITTED if waits else Handling.PLACED)
