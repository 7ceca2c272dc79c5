"""The evaluator of real processes, on a job that speaks to dltune as one with TensorFlow does."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from pretended_job import STEP
from sessions import soon, states

from dltune.base.errors import JobFailed, UsageError
from dltune.plan.settings.setting import Circumstances
from dltune.schemas.profile import Framework
from dltune.schemas.settings import Choice
from dltune.system import topology
from dltune.system.proc import stat
from dltune.tune import candidate_job, evaluation
from dltune.tune.candidates import AS_GIVEN, Candidate, Refused, offer
from dltune.tune.evaluation import Measured
from dltune.tune.search import NothingToMeasureError, Search
from dltune.turns.barrier import Taken, Usage

JOB = (sys.executable, str(Path(__file__).parent / "pretended_job.py"))
FAST = (Choice("onednn_primitives", "kept"),)
DIES = (Choice("xla", "auto"),)
HANGS = (Choice("onednn_caller", "works"),)
HANGS_LATER = (Choice("threads", "3x1"),)
IDLE = (Choice("batch_norm", "fused"),)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns. Patience is long but where something hangs."""
    monkeypatch.setattr(evaluation, "TURN_SECONDS", 0.08)
    monkeypatch.setattr(evaluation, "LEAST_PATIENCE", 60.0)
    monkeypatch.setattr(evaluation, "LEAST_TURN_PATIENCE", 60.0)


def circumstances(*arguments: str) -> Circumstances:
    return Circumstances(topology.local(), (*JOB, *arguments), dict(os.environ))


@contextmanager
def evaluator(*arguments: str, framework: Framework | None = None) -> Iterator[Measured]:
    made = Measured(
        circumstances(*arguments), budget=600, patience=60, verbose=False, framework=framework
    )
    with made:
        yield made


def sessions(found: Measured) -> list[int]:
    return [tried.pid for tried in found._stands.values()]


def taken_by(
    found: Measured, order: Sequence[Candidate] = (AS_GIVEN,)
) -> Mapping[Candidate, float]:
    """The seconds of a step of each, in a round in which nothing is refused: the job as given
    sleeps for STEP in each of its steps, and a step lies within its turn."""
    began = time.monotonic()
    taken = found.round(order)
    longest = time.monotonic() - began
    assert list(taken) == list(order)
    seconds = {one: value for one, value in taken.items() if isinstance(value, float)}
    assert seconds.keys() == taken.keys()
    assert STEP <= seconds[AS_GIVEN] <= longest
    return seconds


def test_turns_of_what_stands() -> None:
    with evaluator() as found:
        assert found.start(AS_GIVEN) is None
        found.expect([FAST])
        assert found.start(FAST) is None
        for order in ([AS_GIVEN, FAST], [FAST, AS_GIVEN]):
            taken = taken_by(found, order)
            assert taken[FAST] < taken[AS_GIVEN]
        jobs = sessions(found)
        found.drop(FAST)
        assert [bool(stat.session(job)) for job in jobs] == [True, False]
    assert not any(stat.session(job) for job in jobs)
    assert found.framework is not None
    assert found.framework.title == "TensorFlow 2.21.0"


@pytest.mark.parametrize(("waits", "steps"), [(False, 1), (True, 2)])
def test_a_turn_of_long_steps_is_one_of_them_and_one_that_warms_up_where_data_rests(
    waits: bool, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "LONG", 0.0)
    monkeypatch.setattr(candidate_job.Tried, "waits", waits)
    asked = []
    take = candidate_job.Tried.take

    def taking(one: candidate_job.Tried, executions: int, idle: Callable[[], None]) -> Taken:
        asked.append(executions)
        return take(one, executions, idle)

    monkeypatch.setattr(candidate_job.Tried, "take", taking)
    with evaluator() as found:
        assert found.start(AS_GIVEN) is None
        assert not asked  # the steps by which it was found have told how long they are
        taken_by(found)
    assert asked == [steps]


def test_a_job_whose_time_is_in_few_of_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (0.5, 0.02, 0.02, 0.82, 0.02, 0.02)  # the first one warms up
    turn = Taken(6, steps, sum(steps), 1.0, Usage(0.0, 0, 0))
    with evaluator() as found:
        assert found.typical_share == 1.0
        assert found.start(AS_GIVEN) is None
        with monkeypatch.context() as pretending:
            pretending.setattr(candidate_job.Tried, "take", lambda *_: turn)
            assert found.round([AS_GIVEN])[AS_GIVEN] == 0.02
        assert found.typical_share == pytest.approx(5 * 0.02 / 0.9)


def test_between_turns_nothing_of_a_job_runs_that_waits_for_its_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(candidate_job.Tried, "waits", True)
    with evaluator() as found:
        assert found.start(AS_GIVEN) is None
        found.round([AS_GIVEN])
        (job,) = sessions(found)
        assert soon(lambda: states(job) == {"T"})  # a signal is obeyed a moment later


def test_a_job_that_does_not_wait_goes_on_between_its_turns() -> None:
    with evaluator() as found:
        assert found.start(AS_GIVEN) is None
        found.round([AS_GIVEN])
        (job,) = sessions(found)
        assert "T" not in states(job)


def test_of_several_ranks_one_waits_at_the_step_barrier_and_none_is_stopped() -> None:
    """The other one does not wait for it here, which real ones do."""
    ranks = (
        "import os, subprocess, sys; started = [subprocess.Popen(sys.argv[1:], env={**os.environ, "
        "'OMPI_COMM_WORLD_LOCAL_RANK': str(i), 'OMPI_COMM_WORLD_LOCAL_SIZE': '2'}) "
        "for i in range(2)]; [one.wait() for one in started]"
    )
    here = Circumstances(topology.local(), (sys.executable, "-c", ranks, *JOB), dict(os.environ))
    found = Measured(here, budget=600, patience=60, verbose=False)
    with found:
        assert found.start(AS_GIVEN) is None
        for _ in range(3):
            taken_by(found)
        (job,) = sessions(found)
        assert len(stat.session(job)) == 3
        assert "T" not in states(job)
    assert not stat.session(job)


def test_a_step_of_two_graphs() -> None:
    with evaluator("--graphs", "2") as found:
        assert found.start(AS_GIVEN) is None
        taken_by(found)


def test_what_crashes_or_hangs_or_has_no_effect_is_refused_and_others_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluation, "LEAST_PATIENCE", 5.0)  # for each of the three that start
    with evaluator() as found:
        assert found.start(AS_GIVEN) is None
        assert found._first_start is not None
        # a job that took long to start has more patience
        silence = min(60.0, 3 * max(5.0, evaluation.PATIENCE * found._first_start))
        found.expect([DIES, HANGS, FAST])
        dies, hangs = found.start(DIES), found.start(HANGS)
        assert isinstance(dies, Refused)
        assert dies.verdict == "failed"
        assert "this job cannot stand XLA" in dies.why
        assert isinstance(hangs, Refused)
        assert hangs.verdict == "failed"
        assert f"no message for {silence:.0f} s before its first step" in hangs.why
        assert found.start(FAST) is None
        assert len(found.round([AS_GIVEN, FAST])) == 2
        jobs = sessions(found)
        assert len(jobs) == 2


def test_what_hangs_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "LEAST_TURN_PATIENCE", 5.0)
    with evaluator() as found:
        assert found.start(AS_GIVEN) is None
        assert found.start(HANGS_LATER) is None
        # a job of long turns has more patience
        turn = found._stands[HANGS_LATER].allotment.seconds
        limit = max(5.0, evaluation.TURN_PATIENCE * turn)
        for _ in range(12):
            taken = found.round([AS_GIVEN, HANGS_LATER])
            assert isinstance(taken[AS_GIVEN], float)
            if isinstance(taken[HANGS_LATER], Refused):
                break
        refused = taken[HANGS_LATER]
        assert isinstance(refused, Refused)
        assert refused.why == f"it hung for {limit:.0f} s"
        assert len(sessions(found)) == 1


def test_a_job_that_ends_by_itself_is_started_again() -> None:
    with evaluator("--turns", "6") as found:
        assert found.start(AS_GIVEN) is None
        first = sessions(found)
        for _ in range(8):
            assert isinstance(found.round([AS_GIVEN])[AS_GIVEN], float)
        assert sessions(found) != first


def test_a_job_that_ends_too_early() -> None:
    with evaluator("--steps", "5") as found:
        refused = found.start(AS_GIVEN)
        assert isinstance(refused, Refused)
        assert isinstance(found.error, UsageError)
        assert found.error.remedy == "let the job train for more steps"
    with evaluator("--steps", "20") as found:
        refused = found.start(AS_GIVEN)
        assert isinstance(refused, Refused)
        assert isinstance(found.error, UsageError)
        assert found.error.remedy == "let the job train for more steps"


def test_what_was_expected_and_not_started_is_ended() -> None:
    with evaluator() as found:
        assert found.start(AS_GIVEN) is None
        found.expect([FAST])
        (job,) = [one.pid for one in found._starting.values()]
        found.round([AS_GIVEN])
        assert not stat.session(job)


def test_a_search_taken_up_with_another_tensorflow() -> None:
    with (
        evaluator(framework=Framework("tensorflow", "2.16.2", "", "")) as found,
        pytest.raises(UsageError, match=r"TensorFlow 2\.21\.0"),
    ):
        found.start(AS_GIVEN)


def test_a_search() -> None:
    names = ["onednn_primitives", "xla", "batch_norm"]
    offered = offer(circumstances(), allow="rounding", only=names)
    with evaluator() as found:
        search = Search(found, offered.options)
        search.run()
    verdicts = {trial.candidate: trial.verdict for trial in search.trials}
    assert verdicts[FAST] == "helps"
    assert verdicts[DIES] == "failed"
    assert verdicts[IDLE] == "no effect"
    assert search.chosen == FAST
    assert search.final is not None
    assert search.final.held


def test_a_job_that_fails_by_itself() -> None:
    here = Circumstances(topology.local(), (sys.executable, "-c", "raise SystemExit(7)"), {})
    found = Measured(here, budget=600, patience=60, verbose=False)
    with found, pytest.raises(NothingToMeasureError):
        Search(found, offer(here, allow="rounding").options).run()
    assert isinstance(found.error, JobFailed)
    assert found.error.exit_code == 7
