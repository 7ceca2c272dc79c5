"""A job's steps, found again where settings have changed its graphs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from told import MS, TRAINING, VALIDATION, execution, graph, plugin

from dltune.job import protocol
from dltune.job.record import Record
from dltune.profile import processes
from dltune.turns.step_finder import LEAST_RUNS, PATIENT_RUNS, StepFinder

STEP = [f"layer{i}" for i in range(8)]


def named(
    id: int, names: Sequence[str], types: Sequence[str] = TRAINING, *, xla: bool = False
) -> protocol.Graph:
    """A graph whose nodes have these names, and types of `types` as far as they go."""
    kinds = [types[i] if i < len(types) else "Relu" for i in range(len(names))]
    made = graph(id, kinds, f"signature {id}", xla=xla)
    nodes = [
        msgspec.structs.replace(node, name=name)
        for name, node in zip(names, made.nodes, strict=True)
    ]
    return msgspec.structs.replace(made, nodes=nodes)


def ran(*graphs: tuple[protocol.Graph, int]) -> dict[int, Record]:
    """A process in which each graph has run so often, one after the other."""
    record = Record(plugin(1))
    for made, _ in graphs:
        record.add(made)
        for key in range(len(made.nodes)):
            record.add(protocol.Key(key, f"op{key}", "Relu", ""))
    now = 0
    for number in range(max(runs for _, runs in graphs)):
        for made, runs in graphs:
            if number < runs:
                record.add(execution(made.id, now, [0.001] * len(made.nodes), number=number))
                now += 100 * MS
    return {1: record}


KNOWN = (frozenset(STEP),)


def test_a_graph_that_is_like_the_step_is_known_at_once() -> None:
    fused = named(1, [*STEP[:6], "fused"])
    assert StepFinder(ran((fused, LEAST_RUNS - 1)), KNOWN).find() is None
    found = StepFinder(ran((fused, LEAST_RUNS)), KNOWN).find()
    assert found is not None
    assert found.signatures == ("signature 1",)
    assert found.pid == 1


def test_without_a_known_step_it_takes_longer() -> None:
    step = named(1, STEP)
    assert StepFinder(ran((step, LEAST_RUNS))).find() is None
    found = StepFinder(ran((step, 20))).find()
    assert found is not None
    assert found.nodes == KNOWN


def test_a_long_step_is_known_sooner() -> None:
    step = named(1, STEP)
    for runs, seconds, known in ((4, 10.0, False), (5, 10.0, True), (5, 1.0, False)):
        records = ran((step, 0))
        for number in range(runs):
            records[1].add(execution(1, round(number * seconds * 1e9), [seconds]))
        assert bool(StepFinder(records).find()) is known


def test_validation_is_no_step_however_much_alike() -> None:
    validation = named(1, STEP, VALIDATION)
    step = named(2, STEP)
    assert StepFinder(ran((validation, 9)), KNOWN).find() is None
    found = StepFinder(ran((validation, 9), (step, LEAST_RUNS)), KNOWN).find()
    assert found is not None
    assert found.signatures == ("signature 2",)


def test_what_fills_a_buffer_is_no_step_once_one_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes beside others."""
    monkeypatch.setattr(processes, "UNTRAINED_SECONDS", 0.0)
    filling = named(1, ["decode", "resize", "scale"], VALIDATION)
    found = StepFinder(ran((filling, 40))).find()
    assert found is not None
    assert not found.trains
    assert StepFinder(ran((filling, 40)), KNOWN).find() is None


def test_a_step_that_xla_has_compiled() -> None:
    """Its ops are gone, what it takes from outside is there."""
    cluster = named(1, [*STEP[:3], "cluster_0/xla_run"], ("_Arg",), xla=True)
    found = StepFinder(ran((cluster, LEAST_RUNS)), KNOWN).find()
    assert found is not None
    assert found.signatures == ("signature 1",)


def test_something_else_that_trains_is_not_taken_for_it() -> None:
    other = named(1, [f"other{i}" for i in range(8)])
    assert StepFinder(ran((other, LEAST_RUNS)), KNOWN).find() is None


def test_the_main_graph_of_several_stays_the_main_one() -> None:
    """Whichever takes longer now."""
    critic, actor = [f"critic{i}" for i in range(8)], [f"actor{i}" for i in range(4)]
    known = (frozenset(actor), frozenset(critic))
    graphs = (named(1, critic), LEAST_RUNS), (named(2, actor), LEAST_RUNS)
    found = StepFinder(ran(*graphs), known).find()
    assert found is not None
    assert found.signatures == ("signature 2", "signature 1")


def test_a_graph_of_several_that_does_not_come() -> None:
    actor = [f"actor{i}" for i in range(4)]
    known = (frozenset(actor), frozenset(f"critic{i}" for i in range(8)))
    assert StepFinder(ran((named(1, actor), PATIENT_RUNS - 1)), known).find() is None
    found = StepFinder(ran((named(1, actor), PATIENT_RUNS)), known).find()
    assert found is not None
    assert found.signatures == ("signature 1",)
