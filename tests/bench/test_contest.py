"""Turns: who has one when, how long it is, and what is left when a job ends too early."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
import synthetic
from pretended import Clock, PretendedJob, plan, setting

from dltune.base.errors import DltuneError, JobFailed, UsageError
from dltune.bench.runner import Runner
from dltune.cli import terminal
from dltune.job import protocol
from dltune.job.launch import Event
from dltune.turns import rounds as engine
from dltune.turns.rounds import Progress, Rounds, explained

MACHINE = synthetic.machine(2)
NAMES = ("default", "recommended", "plan")


class Trial:
    """A contest of pretended jobs, and what was told and kept of it."""

    def __init__(
        self,
        jobs: Mapping[str, PretendedJob],
        *,
        rounds: int = 6,
        seconds: float = 0.05,
        signatures: tuple[str, ...] = ("step",),
        patience: float = 0.0,
        spoilt: Callable[[], bool] = lambda: False,
    ) -> None:
        self.told: list[Progress] = []
        self.kept: list[int] = []
        self.runners = []
        for name, job in jobs.items():
            runner = Runner(setting(name, signatures), MACHINE, plan(signatures))
            job.boot(runner)
            self.runners.append(runner)
        self.contest = Rounds(
            self.runners,
            rounds=rounds,
            seconds=seconds,
            patience=patience,
            tell=self.told.append,
            keep=lambda: self.kept.append(sum(map(len, self.contest.turns.values()))),
            watch=lambda: spoilt,
        )


def test_every_setting_has_every_place_equally_often(clock: Clock) -> None:
    trial = Trial({name: PretendedJob(clock) for name in NAMES})
    trial.contest.run()
    turns = [(p.round, p.phase) for p in trial.told if p.round]
    by_round = [[name for r, name in turns if r == n] for n in range(1, 7)]
    assert all(sorted(order) == sorted(NAMES) for order in by_round)
    for place in range(3):
        assert Counter(order[place] for order in by_round) == dict.fromkeys(NAMES, 2)
    assert trial.kept == [3, 6, 9, 12, 15, 18]
    assert trial.contest.partial is None
    assert trial.contest.fault is None


def test_a_spoilt_round_is_taken_again_by_all(clock: Clock) -> None:
    answers = iter([False, True, True, *[False] * 5])
    jobs = {name: PretendedJob(clock) for name in NAMES}
    trial = Trial(jobs, spoilt=lambda: next(answers))
    trial.contest.run()
    for name, turns in trial.contest.turns.items():
        assert [turn.round for turn in turns] == list(range(6))
        assert len(jobs[name].granted) == 1 + 8
    assert trial.kept == [3, 6, 9, 12, 15, 18]
    assert trial.contest.partial is None


def test_the_first_step_of_a_turn_warms_up_and_is_dropped(clock: Clock) -> None:
    slow_first = PretendedJob(clock, cost=lambda number, place: 5.0 if place == 0 else 0.01)
    trial = Trial({"recommended": slow_first, "plan": PretendedJob(clock)})
    trial.contest.run()
    for turns in trial.contest.turns.values():
        assert [step for turn in turns for step in turn.steps] == pytest.approx([0.01] * 30)


def test_where_one_job_pauses_the_turns_of_all_are_shorter(clock: Clock) -> None:
    pauses = PretendedJob(clock, cost=lambda number, _: 0.3 if number % 8 == 7 else 0.002)
    steady = PretendedJob(clock, cost=lambda number, _: 0.002)
    Trial({"plan": pauses, "recommended": steady}, rounds=2, seconds=0.6).contest.run()
    assert pauses.granted == steady.granted
    assert pauses.granted[:2] == [4, 32]
    assert 4 < pauses.granted[2] < 100


@pytest.mark.parametrize(("step", "executions"), [(0.01, 6), (0.001, 51), (10.0, 4)])
def test_a_turn_is_about_so_long_and_has_three_steps(
    clock: Clock, step: float, executions: int
) -> None:
    job = PretendedJob(clock, cost=lambda number, place: step)
    Trial({"plan": job}, rounds=2).contest.run()
    epochs = [32] if executions > 32 else []
    assert job.granted == [4, *epochs, executions, executions]


def test_steps_of_two_graphs(clock: Clock) -> None:
    jobs = {name: PretendedJob(clock, ("d", "g")) for name in NAMES}
    trial = Trial(jobs, signatures=("d", "g"))
    trial.contest.run()
    for turns in trial.contest.turns.values():
        assert [len(turn.steps) for turn in turns] >= [3] * 6
        assert {round(step, 9) for turn in turns for step in turn.steps} == {0.02}


def test_a_main_graph_that_runs_seldom_is_waited_for(clock: Clock) -> None:
    job = PretendedJob(clock, (*["g"] * 15, "d"))
    trial = Trial({"plan": job}, signatures=("d", "g"), rounds=2)
    trial.contest.run()
    assert all(turn.steps for turn in trial.contest.turns["plan"])
    assert len(job.granted) > 3


def test_a_job_that_ends_after_some_rounds(clock: Clock) -> None:
    jobs = {name: PretendedJob(clock) for name in NAMES}
    jobs["plan"] = PretendedJob(clock, length=4 + 2 * 6 + 1, exit_code=9)
    trial = Trial(jobs)
    trial.contest.run()
    assert trial.contest.partial == "the job under plan ended (exit code 9) in round 3 of 6"
    assert trial.contest.fault is not None
    assert trial.contest.fault.job is trial.runners[2]
    assert len(trial.contest.turns["plan"]) == 2
    assert trial.kept[-1] == 2 * 3


@pytest.mark.parametrize("code", [0, 9])
def test_a_job_that_ends_in_the_first_round_keeps_the_turns_before(clock: Clock, code: int) -> None:
    jobs = {name: PretendedJob(clock) for name in NAMES}
    jobs["recommended"] = PretendedJob(clock, length=4 + 3, exit_code=code)
    trial = Trial(jobs)
    trial.contest.run()
    contest = trial.contest
    assert contest.partial == f"the job under recommended ended (exit code {code}) in round 1 of 6"
    assert contest.fault is not None
    assert contest.fault.job is trial.runners[1]
    assert {name: len(turns) for name, turns in contest.turns.items()} == {
        "default": 1,
        "recommended": 0,
        "plan": 0,
    }
    assert trial.kept == [1]


def test_a_job_that_ends_before_anything_is_measured(clock: Clock) -> None:
    jobs = {name: PretendedJob(clock) for name in NAMES}
    jobs["default"] = PretendedJob(clock, length=5, exit_code=9)
    with pytest.raises(JobFailed, match="under default: the job ended with exit code 9") as caught:
        Trial(jobs).contest.run()
    assert caught.value.exit_code == 9
    jobs = {name: PretendedJob(clock) for name in NAMES}
    jobs["default"] = PretendedJob(clock, length=2)
    with pytest.raises(UsageError, match="exit code 0 before anything was measured") as done:
        Trial(jobs).contest.run()
    assert "more steps" in str(done.value.remedy)


def test_a_job_that_tells_nothing_is_refused_with_the_reason(clock: Clock) -> None:
    jobs = {name: PretendedJob(clock) for name in NAMES}
    trial = Trial(jobs)
    jobs["plan"].queue.clear()
    with pytest.raises(DltuneError, match=r"under plan .*no message for .*: .*no Python"):
        trial.contest.run()


class SlowJob(PretendedJob):
    """Tells `first` before it comes to its first step; None: nothing for a while."""

    def __init__(self, clock: Clock, *first: protocol.Message | None) -> None:
        super().__init__(clock)
        self._first = iter(first)
        self._runner: Runner | None = None

    def boot(self, runner: Runner) -> PretendedJob:
        self._runner = runner
        runner.begin(self)
        return self

    def events(self, tick: float) -> Iterator[Event | None]:
        for message in self._first:
            yield Event(None, message) if message else None
        if self._runner:
            super().boot(self._runner)
            self._runner = None
        yield from super().events(tick)


def test_a_plugin_that_is_built_while_several_jobs_wait_is_told_of_once(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job gives the build up, and another begins it anew."""
    monkeypatch.setattr(terminal, "QUIET_SECONDS", 0.0)
    builds, fails = protocol.Building(1, "2.21.0"), protocol.Failed(1, "2.21.0", "no space left")
    jobs = {
        "default": SlowJob(clock, None, builds, None, None, fails, None, None),
        "recommended": SlowJob(clock, *[None] * 7),
        "plan": SlowJob(clock, *[None] * 8, builds, None, None),
    }
    trial = Trial(jobs, rounds=1, patience=60.0)
    line = terminal.Line(None)
    trial.contest.tell = lambda told: line.show(told.phase, (told.phase,))
    trial.contest.run()
    told = capsys.readouterr().err.splitlines()
    assert told[:2] == [
        "dltune: waiting for the first steps of the jobs, 0 of 3 ready",
        "dltune: building the plugin for the framework of the job",
    ]
    assert len(set(told)) == len(told)


class HangingJob(PretendedJob):
    """After so many turns it runs nothing that it is granted."""

    def __init__(self, clock: Clock, turns: int) -> None:
        super().__init__(clock)
        self._turns = turns

    def order(self, lines: Sequence[str]) -> None:
        if len(self.granted) < self._turns:
            super().order(lines)


def test_a_job_that_hangs_in_its_turn(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "HUNG", 0.2)
    jobs = {"default": PretendedJob(clock), "plan": HangingJob(clock, turns=2)}
    trial = Trial(jobs)
    trial.contest.run()
    why = "under plan (no message for 0.2 s): the job hangs in a step"
    assert trial.contest.fault is not None
    assert str(explained(trial.contest.fault)) == why
    assert trial.contest.partial == f"{why}, in round 2 of 6"
    assert [len(turns) for turns in trial.contest.turns.values()] == [1, 1], (
        "what there was is kept"
    )
    jobs = {"default": HangingJob(clock, turns=1), "plan": PretendedJob(clock)}
    with pytest.raises(UsageError, match=r"under default \(no message for 0.2 s\): the job hangs"):
        Trial(jobs).contest.run()


@pytest.mark.parametrize(("enough", "rounds"), [(9.0, 30), (3.01, 15), (1.0, 10)])
def test_fewer_rounds_where_they_would_take_too_long(
    clock: Clock, enough: float, rounds: int
) -> None:
    """A round is two turns of 0.1 s, with the step that warms up."""
    jobs = {name: PretendedJob(clock) for name in NAMES[:2]}
    trial = Trial(jobs, rounds=30, seconds=0.09)
    trial.contest.enough = enough
    trial.contest.run()
    assert [len(turns) for turns in trial.contest.turns.values()] == [rounds, rounds]
    assert trial.contest.partial is None


def test_when_a_job_first_stood(clock: Clock) -> None:
    """Behind the barrier it waits for its turn, which is no time of its own."""
    clock.pass_(3.0)
    trial = Trial({name: PretendedJob(clock) for name in NAMES})
    at = clock.now
    trial.contest.run()
    assert [runner.stood for runner in trial.runners] == [at] * len(NAMES)


def test_interrupted_says_where(clock: Clock) -> None:
    trial = Trial({name: PretendedJob(clock) for name in NAMES})
    tell = trial.told.append

    def interrupt(told: Progress) -> None:
        tell(told)
        if told.round == 3 and told.phase == "default":
            raise KeyboardInterrupt

    trial.contest.tell = interrupt
    with pytest.raises(KeyboardInterrupt):
        trial.contest.run()
    assert trial.contest.partial == "interrupted in round 3 of 6"
    assert all(len(turns) >= 2 for turns in trial.contest.turns.values())
