"""Each reason for which a job gives no step, in one sentence, with the right exit code."""

from __future__ import annotations

import pytest
from told import MS, TRAINING, VALIDATION, execution, graph, record

from dltune.base.errors import JobFailed, UsageError
from dltune.job import protocol
from dltune.job.failures import KILLED, Sightings, crash_of, hopeless, none_found, why_no_step
from dltune.system import kernel_files

PYTHON = protocol.Python(1, ["python", "train.py"], "3.11.0", {})
FAILED = protocol.Failed(1, "2.15.0", "TensorFlow 2.15.0 is too old, 2.16 or newer is needed")


def report(xla: float, eager: float) -> protocol.Report:
    return protocol.Report("asked", xla, 0, 0.0, eager, protocol.Admission(0, 0, 0.0, []))


def seen(*told, python: bool = True) -> Sightings:
    sightings = Sightings()
    if python:
        sightings.add(PYTHON)
    for each in told:
        if isinstance(each, protocol.Failed):
            sightings.add(each)
        else:
            sightings.records[len(sightings.records) + 1] = each
    return sightings


def with_report(xla: float, eager: float, *graphs, executions=()):
    told = record(graphs, executions)
    told.add(report(xla, eager))
    return told


def steps(seconds: float, times: int = 5):
    return [execution(0, i * 1000 * MS, [seconds]) for i in range(times)]


CASES = {
    "no Python": (seen(python=False), "could not attach to the job"),
    "no TensorFlow": (seen(), "the job neither imported TensorFlow"),
    "too old": (seen(FAILED), "TensorFlow 2.15.0 is too old"),
    "XLA": (seen(with_report(5.0, 0.1)), "XLA compiles the job's step"),
    "XLA in part": (
        seen(record([graph(0, TRAINING, xla=True)], steps(0.1))),
        "XLA compiles the job's step",
    ),
    "eager": (seen(with_report(0.0, 5.0)), "eagerly"),
    "accelerator": (
        seen(record([graph(0, TRAINING, device="/device:GPU:0")])),
        "runs on an accelerator",
    ),
    "too short": (
        seen(record([graph(0, TRAINING)])),
        "before dltune could measure enough training steps",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_job_that_ended_well_is_wrong_use(case):
    sightings, text = CASES[case]
    error = why_no_step(sightings, 0)
    assert isinstance(error, UsageError)
    assert text in str(error)
    assert error.exit_code == 2


@pytest.mark.parametrize("case", [case for case in CASES if case != "eager"])
def test_a_job_that_failed_gives_its_own_code(case):
    sightings, text = CASES[case]
    error = why_no_step(sightings, 7)
    assert isinstance(error, JobFailed)
    assert text in str(error)
    assert error.exit_code == 7


def test_a_job_that_failed_after_eager_preparation_is_not_said_to_be_eager():
    assert "eagerly" not in str(why_no_step(CASES["eager"][0], 1))


@pytest.mark.parametrize("code", [132, 134, 135, 139])
def test_a_crash_names_the_way_out(code):
    error = why_no_step(seen(record([])), code)
    assert isinstance(error, JobFailed)
    assert error.exit_code == code
    assert "run the job without dltune" in (error.remedy or "")


def test_a_crash_without_the_plugin_is_not_ours():
    assert crash_of(seen(), 139) is None


class TestWhileTheJobRuns:
    def test_a_failed_plugin_is_hopeless(self):
        assert "too old" in str(hopeless(seen(FAILED)))

    def test_a_failed_plugin_in_one_of_several_processes_is_not(self):
        assert hopeless(seen(FAILED, record([]))) is None

    def test_a_training_graph_on_an_accelerator_is_hopeless(self):
        assert hopeless(CASES["accelerator"][0]) is not None

    def test_another_graph_on_an_accelerator_is_not(self):
        assert hopeless(seen(record([graph(0, VALIDATION, device="/device:GPU:0")]))) is None

    def test_xla_is_hopeless_once_it_takes_the_time(self):
        assert hopeless(seen(with_report(1.0, 0.0))) is None
        assert "XLA" in str(hopeless(seen(with_report(10.0, 0.0))))

    def test_a_graph_with_clusters_counts_whole(self):
        """Also where what XLA compiled runs asynchronously, as in Keras's `fit`."""
        asynchronous = [execution(0, i * 1000 * MS, [2.0], threads=-1) for i in range(3)]
        told = record([graph(0, VALIDATION, xla=True)], asynchronous)
        assert "XLA" in str(hopeless(seen(told)))

    def test_a_small_cluster_beside_a_heavy_graph_is_not(self):
        heavy = with_report(10.0, 0.0, graph(0, TRAINING), executions=steps(5.0))
        assert hopeless(seen(heavy)) is None

    def test_a_long_eager_preparation_is_not(self):
        assert hopeless(seen(with_report(0.0, 20.0))) is None

    def test_ops_run_eagerly_for_longer_are(self):
        assert "eagerly" in str(hopeless(seen(with_report(0.0, 90.0))))

    def test_a_job_that_has_only_begun_is_not(self):
        assert hopeless(seen(python=False)) is None
        assert hopeless(seen()) is None
        assert hopeless(seen(record([graph(0, TRAINING)]))) is None


def test_a_job_in_which_no_step_of_training_ends():
    """As one that waits for its first batch."""
    assert none_found(seen(), long=False) is None
    assert str(none_found(seen(), long=True)).startswith("the job has not finished a training step")


def test_a_job_that_was_killed_for_want_of_memory(monkeypatch: pytest.MonkeyPatch):
    """The kernel's own count tells it from one that somebody killed."""
    sightings = seen(record([graph(0, TRAINING)], steps(0.1)))
    assert crash_of(sightings, KILLED) is None
    monkeypatch.setattr(kernel_files, "oom_kills", lambda: sightings.oom_kills + 1)
    limits = kernel_files.Limits(None, None, 2**31)
    monkeypatch.setattr(kernel_files, "limits", lambda: limits)
    assert crash_of(sightings, 0) is None
    error = crash_of(sightings, KILLED)
    assert error is not None
    assert "control group ran out of memory, which is limited to 2048 MiB" in str(error)
    assert "--largest-batch" in (error.remedy or "")
    assert error.exit_code == KILLED
    assert why_no_step(sightings, KILLED) is not None
