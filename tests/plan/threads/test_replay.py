"""A plan's simulation is of what `run` would enforce of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest
import synthetic

from dltune.plan.plan import merge_section, plan_faults, with_sections
from dltune.plan.threads.decide import choose
from dltune.plan.threads.replay import replayed
from dltune.schemas.graph import of_node
from dltune.schemas.plan import OpPlan, Plan
from dltune.simulate.workload import Workload, calibrated

replace = msgspec.structs.replace


@pytest.fixture(scope="module")
def workload() -> Workload:
    profile = synthetic.network(synthetic.machine(4), layers=6, branches=2)
    return calibrated(profile)[0]


@pytest.fixture(scope="module")
def planned(workload) -> Callable[[str], Plan]:
    profile = synthetic.network(synthetic.machine(4), layers=6, branches=2)
    return lambda name: merge_section(
        None, "threads", choose(workload, name).threads(workload), workload.machine, profile
    )


def edited(plan: Plan, change: Callable[[OpPlan], OpPlan], **fields: object) -> Plan:
    ops = tuple(map(change, plan.sections["threads"].ops))
    return with_sections(plan, threads=replace(plan.sections["threads"], ops=ops, **fields))


@pytest.mark.parametrize("strategy", ["per-type", "per-type+co-run"])
def test_as_made_it_takes_what_was_predicted(workload, planned, strategy):
    plan = planned(strategy)
    predicted = next(
        p
        for p in plan.sections["threads"].predictions
        if p.setting == plan.sections["threads"].strategy
    )
    assert replayed(workload, plan.sections["threads"]).seconds == pytest.approx(
        predicted.seconds, rel=1e-6
    )


@pytest.mark.parametrize("strategy", ["per-type", "per-type+co-run"])
def test_what_the_plan_calls_small_is_left_to_tensorflow(workload, planned, strategy):
    plan = planned(strategy)
    uniform = plan.sections["threads"].uniform
    left = replayed(workload, edited(plan, lambda op: op, small=1.0).sections["threads"])
    if strategy == "per-type":
        pool = workload.uniform(uniform.intra, uniform.inter)
        assert left.seconds == pytest.approx(pool.seconds, rel=1e-6)
    else:  # side by side on all cores, where admission would have shared them out
        assert left.corunning > 1.2 * replayed(workload, plan.sections["threads"]).corunning


def test_ops_that_name_their_cores_run_there_and_are_not_admitted(workload, planned):
    plan = planned("per-type+co-run")
    keys = {op.key for op in plan.sections["threads"].ops}
    there = edited(plan, lambda op: replace(op, cores=(3,))).sections["threads"]
    outcome = replayed(workload, there)
    graph, timeline = workload.graphs[0], outcome.timelines[0]
    cores = {
        timeline.cores[node]
        for node, op in enumerate(graph.op)
        if op >= 0 and workload.ops[op].key in keys
    }
    assert cores == {(3,)}
    # all on one core share it
    assert outcome.seconds > 1.5 * replayed(workload, plan.sections["threads"]).seconds


def test_cores_that_are_not_there_leave_the_op_to_tensorflow(workload, planned):
    plan = planned("per-type")
    uniform = plan.sections["threads"].uniform
    dropped = replayed(
        workload, edited(plan, lambda op: replace(op, cores=(9,))).sections["threads"]
    )
    pool = workload.uniform(uniform.intra, uniform.inter)
    assert dropped.seconds == pytest.approx(pool.seconds, rel=1e-6)


def test_a_node_of_its_own_goes_before_its_op(workload, planned):
    """One of many nodes of an op, placed on a core where nothing else of the op runs."""
    plan = planned("per-type+co-run")
    graph = workload.graphs[0]
    counts = Counter(op for op in graph.op if op >= 0)
    index = next(op for op, n in counts.items() if n == 1 and not workload.small(op))
    node = list(graph.op).index(index)
    identity = of_node(plan.signatures[0], graph.names[node])
    entry = next(op for op in plan.sections["threads"].ops if op.key == workload.ops[index].key)
    own = replace(entry, key=identity, threads=1, seconds=entry.serial, cores=(2,))
    both = with_sections(
        plan, threads=replace(plan.sections["threads"], ops=(*plan.sections["threads"].ops, own))
    )
    assert plan_faults(both) == []
    timeline = replayed(workload, both.sections["threads"]).timelines[0]
    assert timeline.cores[node] == (2,)
    assert timeline.end[node] - timeline.start[node] >= entry.serial
    # of a graph or a node that is not there: as if it were not said
    absent = replace(own, key=of_node(plan.signatures[0], "nowhere"))
    unknown = with_sections(
        plan, threads=replace(plan.sections["threads"], ops=(*plan.sections["threads"].ops, absent))
    )
    assert (
        replayed(workload, unknown.sections["threads"]).seconds
        == replayed(workload, plan.sections["threads"]).seconds
    )


def test_an_entry_for_a_node_of_another_graph_is_a_fault(planned):
    plan = planned("per-type")
    for key in (of_node("0000", "x"), "@nothing"):
        other = replace(plan.sections["threads"].ops[0], key=key)
        (fault,) = plan_faults(
            with_sections(plan, threads=replace(plan.sections["threads"], ops=(other,)))
        )
        assert fault == (
            f"sections.threads.ops[0] ({key}).key must name a node of the plan's graphs, "
            f"got {key!r}"
        )
