"""When the steps of a job are known."""

from __future__ import annotations

import pytest
from told import MS, TRAINING, VALIDATION, execution, graph, record

from dltune.profile import processes
from dltune.profile.processes import Discovery, Steps


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def after(runs: int, seconds: float = 0.01, types=TRAINING, **more):
    told = record([graph(0, types, **more)])
    for number in range(runs):
        told.add(execution(0, round(number * seconds * 2e9), [seconds]))
    return told


def test_a_step_is_known_after_its_warm_up_and_twelve_executions():
    assert Discovery({1: after(15)}).find() is None
    assert Discovery({1: after(16)}).find() == Steps(1, (0,), True)


def test_a_long_step_is_known_sooner():
    assert Discovery({1: after(6, 20.0)}).find() is None
    assert Discovery({1: after(7, 20.0)}).find() == Steps(1, (0,), True)


def test_a_graph_that_does_not_train_is_taken_when_nothing_else_has_come():
    clock = Clock()
    found = Discovery({1: after(50, types=VALIDATION)}, clock)
    assert found.find() is None
    clock.now = processes.UNTRAINED_SECONDS - 1
    assert found.find() is None
    clock.now += 1
    assert found.find() == Steps(1, (0,), False)


def test_the_process_that_trains_most_is_taken():
    records = {1: after(20, 0.01), 2: after(20, 0.02), 3: after(20, 0.5, VALIDATION)}
    found = Discovery(records).find()
    assert found is not None
    assert found.pid == 2


def test_xla_is_not_a_step():
    assert Discovery({1: after(20, xla=True)}).find() is None


def test_what_runs_beside_a_step_that_xla_compiles_is_not_the_step():
    clock = Clock()
    told = record([graph(0, ["StatefulPartitionedCall"], xla=True), graph(1, ["GatherV2"])])
    for number in range(20):
        told.add(execution(0, number * 100 * MS, [0.05], threads=-1))
        told.add(execution(1, number * 100 * MS, [0.001]))
    found = Discovery({1: told}, clock)
    assert found.find() is None
    clock.now = processes.UNTRAINED_SECONDS + 1
    assert found.find() is None


def test_nothing_has_repeated():
    assert Discovery({}).find() is None
    assert Discovery({}).salvage() is None
    assert Discovery({1: after(1)}).salvage() is None
    assert Discovery({}).runs == 0


@pytest.mark.parametrize("types", [TRAINING, VALIDATION])
def test_what_a_job_that_ended_has_shown_is_salvaged(types):
    found = Discovery({1: after(2, types=types)})
    assert found.salvage() == Steps(1, (0,), types is TRAINING)
    assert found.runs == 2


def test_times_are_nanoseconds_in_messages():
    assert after(2, 0.5).seconds[0] == pytest.approx(0.5)
    assert after(2, 0.5).executions[0][1].start == 1000 * MS


def test_a_parameter_server_is_taken_only_where_there_is_no_worker():
    """It changes variables by gradients, too, and may take more time for that."""
    server = after(20, 0.5, device="/job:ps/replica:0/task:0/device:CPU:0")
    worker = after(20, 0.01, device="/job:worker/replica:0/task:0/device:CPU:0")
    for records in ({1: server, 2: worker}, {2: worker, 1: server}):
        assert Discovery(records).find() == Steps(2, (0,), True)
    assert Discovery({1: server}).find() == Steps(1, (0,), True)
