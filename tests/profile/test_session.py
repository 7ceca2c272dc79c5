"""A session on pretended jobs whose op times are known."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
from profile_pretended import Job, NoLooks, Process
from synthetic import machine
from told import PIPELINE, PYTHON_TOLD, TRAINING, VALIDATION, graph

from dltune.base.documents import struct_faults
from dltune.base.errors import JobFailed, UsageError
from dltune.job import protocol
from dltune.job.launch import Event
from dltune.profile import op_measurement, session, session_state
from dltune.profile import processes as discovery
from dltune.profile.session import Session
from dltune.profile.session_state import ProfileRequest, Progress
from dltune.schemas.profile import Profile

# the best thread count of each node's op
BEST = {0: 1, 1: 2, 2: 4, 3: 2}


def curve(key: int, threads: int) -> float:
    """Falls to the op's best count and rises after it."""
    n = threads or 4
    best = BEST[key]
    return 1e-3 * (1 + abs(n - best)) / (key + 1)


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Pretended processes are not in /proc; who does not train ends soon."""
    monkeypatch.setattr(session, "require_all_reported", lambda *_: None)
    monkeypatch.setattr(Session, "_measured_process_ended", lambda _: False)
    monkeypatch.setattr(discovery, "UNTRAINED_SECONDS", 0.0)


class Profiling:
    """A session, its pretended processes and all it told and kept."""

    def __init__(
        self, cores: int = 4, processes: int = 1, ready: Callable[[], bool] = lambda: True
    ) -> None:
        self.progress: list[Progress] = []
        self.kept: list[Profile] = []
        self.session = Session(
            ProfileRequest(
                machine(cores),
                ["python", "train.py"],
                interval=1,
                cap=3,
                tell=self.progress.append,
                keep=self.kept.append,
                look=NoLooks,
                ready=ready,
            )
        )
        self.processes = [Process(curve, pid) for pid in range(1, processes + 1)]
        for process in self.processes:
            process.order(self.session.greet(process))  # type: ignore[arg-type]
        self.process = self.processes[0]

    def run(self, story: Iterator[Event | None], code: int = 0) -> Profile:
        return self.session.run(Job(itertools.chain([PYTHON_TOLD], story), code))  # type: ignore


def forever(process: Process, *graphs: int, times: int = 5000) -> Iterator[Event | None]:
    for _ in range(times):
        for each in graphs:
            yield from process.run(each, pause=0.001)


def best_cases(profile: Profile) -> dict[str, int]:
    return {op.type: min(op.times, key=lambda t: t.median).threads for op in profile.ops}


def test_a_whole_profile_finds_the_best_count_of_each_op():
    profiling = Profiling()

    def story():
        yield from profiling.process.show(graph(0, TRAINING))
        yield from forever(profiling.process, 0)

    found = profiling.run(story())
    assert found.partial is None
    assert not struct_faults("", found)
    assert best_cases(found) == {kind: BEST[i] for i, kind in enumerate(TRAINING)}
    (step,) = found.steps
    assert step.span.median == pytest.approx(sum(curve(i, 0) for i in range(4)), rel=1e-3)
    assert step.wall.median == pytest.approx(step.span.median + 0.001, rel=1e-3)
    assert [node.inputs for node in step.nodes] == [(), (0,), (1,), (2,)]
    for op in found.ops:
        assert op.count == 1
        assert op.own == pytest.approx(curve(TRAINING.index(op.type), 0))
        for time in op.times:
            assert time.median == pytest.approx(curve(TRAINING.index(op.type), time.threads))


@pytest.mark.parametrize(("seconds", "pause"), [(60.0, 0.001), (0.0, 0.5)])
def test_after_a_rest_steps_are_recorded_anew(monkeypatch, seconds, pause):
    """While it begins the job waits for input; that is not how it runs. What does not come within
    so many seconds is not waited for."""
    monkeypatch.setattr(session, "LOOK_SECONDS", -1.0)
    monkeypatch.setattr(session, "ANEW_SECONDS", seconds)
    watching = [True]
    profiling = Profiling(ready=lambda: not watching[0])
    process = profiling.process

    def story():
        yield from process.show(graph(0, TRAINING))
        for _ in range(20):
            yield from process.run(0, pause=0.5)
        watching.clear()
        watching.append(False)
        yield None
        yield from forever(process, 0)

    (step,) = profiling.run(story()).steps
    assert step.wall.median == pytest.approx(step.span.median + pause, rel=1e-3)


def test_the_job_is_let_go_and_was_told_to_detach():
    profiling = Profiling()

    def story():
        yield from profiling.process.show(graph(0, TRAINING))
        yield from forever(profiling.process, 0)

    profiling.run(story())
    heard = profiling.process.heard
    assert "detach\t1" in heard
    assert heard[-3].startswith("begin\t")
    assert heard[-2:] == ["small\t0.0", "end"], "the last orders order nothing"


def test_ops_that_have_stopped_keep_their_best():
    profiling = Profiling(cores=6)

    def story():
        yield from profiling.process.show(graph(0, TRAINING))
        yield from forever(profiling.process, 0)

    profiling.run(story())
    last = [line for line in profiling.process.heard if line.startswith("op\tConv2D(")]
    assert last
    assert all(line.split("\t")[2] == "1" for line in last)


@pytest.mark.parametrize("before", [10, 25])
def test_validation_first_is_not_taken_for_the_step(before):
    profiling = Profiling()
    state = profiling.session.state
    state.request = replace(state.request, notes=["a note of the caller"])
    process = profiling.process

    def story():
        yield from process.show(graph(0, VALIDATION))
        yield from process.show(graph(1, TRAINING))
        yield from forever(process, 0, times=before)
        yield from forever(process, 1)

    found = profiling.run(story())
    assert [step.signature for step in found.steps] == ["-".join(TRAINING)]
    assert found.notes == ("a note of the caller",)
    assert not struct_faults("", found)


def test_a_job_that_computes_no_gradients_is_measured_and_says_so():
    profiling = Profiling()

    def story():
        yield from profiling.process.show(graph(0, VALIDATION))
        yield from forever(profiling.process, 0)

    found = profiling.run(story())
    assert len(found.steps) == 1
    assert "computes gradients" in found.notes[0]


def test_validation_between_the_cases_only_pauses_the_climb():
    profiling = Profiling()
    process = profiling.process

    def story():
        yield from process.show(graph(0, TRAINING))
        yield from process.show(graph(1, VALIDATION))
        for _ in range(100):
            yield from forever(process, 0, times=5)
            yield from forever(process, 1, times=10)

    found = profiling.run(story())
    assert found.partial is None
    assert len(found.steps) == 1


def test_two_steps_share_the_climb():
    profiling = Profiling()
    process = profiling.process

    def story():
        yield from process.show(graph(0, TRAINING, "generator"))
        yield from process.show(graph(1, TRAINING, "discriminator"))
        yield from forever(process, 0, 1)

    found = profiling.run(story())
    assert {step.signature for step in found.steps} == {"generator", "discriminator"}
    assert sum(step.share for step in found.steps) == pytest.approx(1)
    assert {op.count for op in found.ops} == {2}


@pytest.fixture
def clock(monkeypatch):
    """A second for each time that it is looked at."""
    seconds = itertools.count()
    fake = SimpleNamespace(monotonic=lambda: float(next(seconds)))
    for module in (session, session_state, op_measurement):
        monkeypatch.setattr(module, "time", fake)


@pytest.mark.parametrize("times", [17, 18, 19, 20])
def test_a_step_that_stops_running_does_not_stop_the_climb(monkeypatch, clock, times):
    """Wherever in a case it stops."""
    monkeypatch.setattr(op_measurement, "GONE_SECONDS", 500.0)
    profiling = Profiling()
    process = profiling.process

    def story():
        yield from process.show(graph(0, TRAINING, "first"))
        yield from process.show(graph(1, TRAINING, "second"))
        yield from forever(process, 0, 1, times=times)
        yield from forever(process, 1)

    found = profiling.run(story())
    assert found.partial is None


@pytest.mark.parametrize("times", [17, 18, 19, 20])
def test_a_job_that_goes_on_to_another_model_is_given_up(monkeypatch, clock, times):
    monkeypatch.setattr(op_measurement, "GONE_SECONDS", 500.0)
    profiling = Profiling()

    def story():
        yield from profiling.process.show(graph(0, TRAINING))
        yield from forever(profiling.process, 0, times=times)
        yield from itertools.repeat(None, 5000)
        raise AssertionError("it is waited for")

    found = profiling.run(story())
    assert (found.partial or "").startswith("the measured step did not run for 60")


def test_a_function_that_is_traced_for_each_epoch_is_one_step():
    profiling = Profiling()
    process = profiling.process

    def story():
        for epoch in range(200):
            yield from process.show(graph(epoch, TRAINING))
            yield from forever(process, epoch, times=3)

    found = profiling.run(story())
    assert found.partial is None
    assert len(found.steps) == 1


def test_the_process_that_trains_is_measured_and_the_others_are_told_of():
    profiling = Profiling(processes=2)
    helper, trainer = profiling.processes

    def story():
        yield from helper.show(graph(0, PIPELINE))
        yield from trainer.show(graph(0, TRAINING))
        for _ in range(2000):
            yield from helper.run(0)
            yield from trainer.run(0)

    found = profiling.run(story())
    assert [step.signature for step in found.steps] == ["-".join(TRAINING)]
    assert "1 other process of the job" in found.notes[0]
    assert not any(line.startswith("target") for line in helper.heard)


def test_an_op_that_is_not_under_control_has_no_times():
    profiling = Profiling()
    process = profiling.process
    ordered = process.order

    def obeys_but_for_the_first_op(lines):
        ordered([*lines[:-1], "op\tConv2D(float[0])\t0\t0", *lines[-1:]])

    def story():
        yield from process.show(graph(0, TRAINING))
        process.order = obeys_but_for_the_first_op
        yield from forever(process, 0)

    found = profiling.run(story())
    times = {op.type: op.times for op in found.ops}
    assert times["Conv2D"] == ()
    assert times["Conv2DBackpropFilter"]


@pytest.mark.parametrize("steps", [2, 10, 16, 20, 30])
def test_a_job_that_ends_early_leaves_a_partial_profile(steps):
    profiling = Profiling()

    def story():
        yield from profiling.process.show(graph(0, TRAINING))
        yield from forever(profiling.process, 0, times=steps)

    found = profiling.run(story(), 3)
    assert found.partial == "the job ended (exit code 3) before the measurement was complete"
    assert profiling.kept[-1] == found
    assert not struct_faults("", found)
    assert found.steps[0].executions >= 1


def test_a_job_that_ends_before_a_step_repeats_has_no_profile():
    profiling = Profiling()

    def story():
        yield from profiling.process.show(graph(0, TRAINING))
        yield from forever(profiling.process, 0, times=1)

    with pytest.raises(UsageError, match="before dltune could measure enough training steps"):
        profiling.run(story())
    assert not profiling.kept


def test_a_crash_is_raised_after_what_was_measured_is_kept():
    profiling = Profiling()

    def story():
        yield from profiling.process.show(graph(0, TRAINING))
        yield from forever(profiling.process, 0, times=20)

    with pytest.raises(JobFailed, match="SIGSEGV"):
        profiling.run(story(), 139)
    assert profiling.kept[-1].partial


def test_an_interrupt_keeps_what_was_measured():
    profiling = Profiling()

    def story():
        yield from profiling.process.show(graph(0, TRAINING))
        yield from forever(profiling.process, 0, times=20)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        profiling.run(story())
    profiling.session.interrupted()
    assert profiling.kept[-1].partial == "interrupted"


def test_every_case_is_kept_as_it_ends():
    profiling = Profiling()

    def story():
        yield from profiling.process.show(graph(0, TRAINING))
        yield from forever(profiling.process, 0)

    profiling.run(story())
    kept = [p.partial for p in profiling.kept]
    climbing = kept.count("not all thread counts have been measured")
    assert kept[:climbing] == ["not all thread counts have been measured"] * climbing
    assert 0 < climbing < len(kept)
    assert set(kept[climbing:]) == {None}


def test_a_plugin_that_failed_ends_the_session_at_once():
    request = ProfileRequest(
        machine(2), ["x"], interval=1, cap=3, tell=lambda _: None, keep=lambda _: None
    )
    fresh = Session(request)
    failed = Event(None, protocol.Failed(1, "2.21.0", "no compiler"))
    job = Job(iter([PYTHON_TOLD, failed, None, None]))
    with pytest.raises(UsageError, match="no compiler"):
        fresh.run(job)  # type: ignore[arg-type]
    assert job.told == 2


def test_a_job_that_stands_still_is_said_to(monkeypatch):
    monkeypatch.setattr(session, "STILL_SECONDS", 0.0)
    profiling = Profiling()

    def story():
        yield from profiling.process.show(graph(0, TRAINING))
        yield from profiling.process.run(0, pause=0.001)
        yield None

    with pytest.raises(JobFailed):
        profiling.run(story(), 1)
    assert "but no op has run for 0 s" in profiling.progress[-1].phase


def test_progress_shows_no_case_before_the_climb_and_a_time_left_in_it():
    profiling = Profiling()

    def story():
        yield None
        yield from profiling.process.show(graph(0, TRAINING))
        yield from forever(profiling.process, 0)

    profiling.run(story())
    finding = [p for p in profiling.progress if p.phase != "trying thread counts"]
    climbing = [p for p in profiling.progress if p.phase == "trying thread counts"]
    assert finding
    assert all(p.case is None and p.left is None for p in finding)
    assert all(p.case is not None and p.left is not None and p.left >= 0 for p in climbing)
    steps = [p.step for p in profiling.progress]
    assert steps == sorted(steps)
