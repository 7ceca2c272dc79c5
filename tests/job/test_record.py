"""What is a step among the graphs that a process runs."""

from __future__ import annotations

import pytest
from told import MS, PIPELINE, TRAINING, VALIDATION, execution, graph, record

from dltune.job import protocol
from dltune.job.record import KEPT, main_graph, period, step_graphs


def rounds(which: int, every: int, times: int, seconds: list[float], *, first: int = 0):
    """Executions of a graph every so many ms, from `first` ms on."""
    return [execution(which, (first + every * i) * MS, seconds) for i in range(times)]


def test_the_graph_with_the_most_time_is_the_step():
    told = record(
        [graph(0, TRAINING, "small"), graph(1, TRAINING, "large")],
        rounds(0, 100, 10, [0.0001]) + rounds(1, 100, 10, [0.05], first=10),
    )
    assert main_graph(told) == 1
    assert step_graphs(told, 0.02) == [1]


def test_two_steps_that_take_turns_are_both_found():
    told = record(
        [graph(0, TRAINING, "generator"), graph(1, TRAINING, "discriminator")],
        rounds(0, 100, 10, [0.02]) + rounds(1, 100, 10, [0.05], first=40),
    )
    assert step_graphs(told, 0.02) == [1, 0]


def test_a_pipeline_that_runs_beside_the_step_is_none():
    told = record(
        [graph(0, TRAINING), graph(1, PIPELINE)],
        rounds(0, 100, 10, [0.09]) + rounds(1, 30, 33, [0.02]),
    )
    assert step_graphs(told, 0.02) == [0]


def test_a_pipeline_that_runs_between_the_steps_is_none():
    told = record(
        [graph(0, TRAINING), graph(1, PIPELINE)],
        rounds(0, 100, 10, [0.05]) + rounds(1, 100, 10, [0.02], first=60),
    )
    assert step_graphs(told, 0.02) == [0]


@pytest.mark.parametrize("first", [-5000, 5000])
def test_validation_before_or_after_is_none(first):
    told = record(
        [graph(0, TRAINING), graph(1, VALIDATION)],
        rounds(0, 100, 10, [0.01]) + rounds(1, 100, 30, [0.08], first=first),
    )
    assert main_graph(told) == 0
    assert step_graphs(told, 0.02) == [0]


def test_an_agents_choice_of_action_in_every_round_is_a_step():
    told = record(
        [graph(0, TRAINING), graph(1, VALIDATION)],
        rounds(0, 100, 10, [0.05]) + rounds(1, 100, 10, [0.02], first=60),
    )
    assert step_graphs(told, 0.02) == [0, 1]


def test_without_a_graph_that_trains_the_heaviest_is_taken():
    told = record(
        [graph(0, VALIDATION), graph(1, PIPELINE)],
        rounds(0, 100, 10, [0.05]) + rounds(1, 100, 10, [0.02], first=60),
    )
    assert step_graphs(told, 0.02) == [0, 1]


def test_a_graph_that_ran_once_is_none():
    told = record([graph(0, TRAINING)], rounds(0, 100, 1, [0.05]))
    assert main_graph(told) is None
    assert step_graphs(told, 0.02) == []


def test_a_function_traced_again_counts_as_the_first():
    told = record(
        [graph(0, TRAINING, "step"), graph(1, PIPELINE), graph(2, TRAINING, "step")],
        rounds(0, 100, 3, [0.05]) + rounds(2, 100, 3, [0.05], first=300),
    )
    assert told.same(2) == 0
    assert told.runs == {0: 6}


def test_the_same_signature_with_nodes_in_another_order_stays_apart():
    told = record([graph(0, TRAINING, "step"), graph(1, TRAINING[::-1], "step")])
    assert told.same(1) == 1


def test_a_long_discovery_keeps_the_latest_executions_and_counts_all():
    told = record([graph(0, TRAINING)], rounds(0, 100, 1000, [0.001]))
    assert told.runs[0] == 1000
    assert told.seconds[0] == pytest.approx(0.999)
    assert len(told.executions[0]) == KEPT
    assert told.executions[0][-1].start == 99900 * MS


def test_an_execution_whose_graph_or_key_was_lost_is_left_out_and_said_once():
    told = record([graph(0, TRAINING)])
    told.add(execution(7, 0, [0.1]))
    told.add(execution(0, 0, [0.1], keys=[99]))
    assert not told.runs
    assert len(told.complaints) == 1


def test_settings_are_those_that_the_script_asked_for():
    told = record([])
    assert told.settings() is None
    told.add(protocol.Device(2, 2, 0, 0))
    asked = protocol.Device(1, 1, 1, 1)
    told.add(asked)
    assert told.settings() == asked


@pytest.mark.parametrize(
    ("kind", "trains"),
    [
        ("Conv2DBackpropInput", True),
        ("FusedBatchNormGradV3", True),
        ("ApplyGradientDescent", True),
        ("ResourceApplyAdam", True),
        ("ResourceSparseApplyAdagrad", True),
        ("AssignSubVariableOp", True),
        ("AssignAddVariableOp", False),
        ("StopGradient", False),
        ("Conv2D", False),
    ],
)
def test_what_tells_that_a_graph_trains(kind, trains):
    assert record([graph(0, ["Conv2D", kind])]).trains(0) == trains


def test_how_often_the_main_graph_ran_between_two_reports():
    told = record(
        [graph(0, PIPELINE), graph(1, TRAINING)],
        rounds(0, 30, 33, [0.02]) + rounds(1, 100, 10, [0.05]),
    )
    idle = protocol.Admission(0, 0, 0.0, [])
    first, last = (
        protocol.Report("asked", 0.0, 0, 0.0, 0.0, idle, at=at * 10**9, runs=runs)
        for at, runs in ((5, (99, 40)), (15, (9999, 4040)))
    )
    assert period(told, 1, first, last) == pytest.approx(10 / 4000)
    assert period(told, 1, first, first) is None, "it did not run"
