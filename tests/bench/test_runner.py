"""What counts as a step: from start to start within a turn, and never the time between turns."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st
from pretended import Clock, PretendedJob, execution, plan, setting

from dltune.base.errors import UsageError
from dltune.bench.runner import Runner
from dltune.job import protocol
from dltune.job.launch import Event
from dltune.plan.plan import with_sections
from dltune.schemas.plan import OpPlan, Uniform
from dltune.schemas.settings import Choice, SettingsPlan
from dltune.turns.barrier import JobEndedError, time
from dltune.turns.rounds import LEAST_STEPS, first_turn

MACHINE = synthetic.machine(2)


def standing(job: PretendedJob, *signatures: str, name: str = "recommended") -> Runner:
    signatures = signatures or ("step",)
    runner = Runner(setting(name, signatures), MACHINE, plan(signatures))
    job.boot(runner)
    runner.listen(0)
    assert runner.standing
    return runner


def test_the_first_orders_set_the_pools_and_the_barrier(clock: Clock) -> None:
    job = PretendedJob(clock)
    standing(job)
    assert "uniform\t2\t1" in job.first_orders
    assert {"barrier\t1", "target\tstep"} <= set(job.first_orders)
    assert job.first_orders.index("cores") < job.first_orders.index("uniform\t2\t1")


def test_time_at_the_barrier_is_in_no_step(clock: Clock) -> None:
    runner = standing(PretendedJob(clock))
    for _ in range(3):
        clock.pass_(1000)
        taken = runner.take(4)
        assert taken.steps == pytest.approx([0.01] * 4)
        assert taken.seconds == pytest.approx(0.04)
        assert taken.per_step == 1


def test_an_execution_of_several_steps_is_several_steps(clock: Clock) -> None:
    job = PretendedJob(clock)
    runner = standing(job)
    told = protocol.Setting(job.pid, "steps_per_execution", "4", "set", 1, [], steps=4)
    job.queue.append(Event(None, told))
    taken = runner.take(3)
    assert taken.executions == 3
    assert taken.steps == pytest.approx([0.0025] * 3)
    assert taken.per_step == 0.25


def test_a_turn_has_an_execution_that_counts_however_many_steps_it_is(clock: Clock) -> None:
    job = PretendedJob(clock)
    runner = standing(job)
    told = protocol.Setting(job.pid, "steps_per_execution", "16", "set", 1, [], steps=16)
    job.queue.append(Event(None, told))
    found = first_turn(runner, 0.0)
    assert found is not None
    assert (found.executions, found.steps) == (2, 32)
    assert runner.take(found.executions).steps[found.warm_up :] == (pytest.approx(0.01 / 16),)


def test_a_turn_of_short_epochs_is_no_longer_for_their_pauses(clock: Clock) -> None:
    """Eight steps of 2 ms, and then 0.3 s in which the job collects its garbage."""
    job = PretendedJob(clock, cost=lambda number, _: 0.3 if number % 8 == 7 else 0.002)
    found = first_turn(standing(job), 0.6)
    assert found is not None
    assert job.granted == [4, 32]
    assert found.executions == 301
    shorter = found.shortened(found.share)
    assert found.least < shorter.executions < 100
    assert shorter.seconds == pytest.approx(shorter.steps * 0.002)


def test_a_turn_with_a_validation_in_it_shortens_none(clock: Clock) -> None:
    job = PretendedJob(clock, cost=lambda number, _: 9.0 if number == 20 else 0.002)
    found = first_turn(standing(job), 0.6)
    assert found is not None
    assert (found.share, job.granted) == (1.0, [4, 32])


def test_a_validation_within_an_execution_of_several_steps(clock: Clock) -> None:
    job = PretendedJob(clock, cost=lambda number, _: 9.0 if number == 20 else 0.002)
    runner = standing(job)
    told = protocol.Setting(job.pid, "steps_per_execution", "16", "set", 1, [], steps=16)
    job.queue.append(Event(None, told))
    found = first_turn(runner, 0.6)
    assert found is not None
    assert (found.share, job.granted) == (1.0, [4, 32])
    assert found.shortened(0.0).executions == found.least == 2  # one of them counts


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 60), st.floats(0.01, 20.0), st.floats(0.001, 0.01))
def test_a_shorter_turn_is_some_steps_that_count(epoch: int, pause: float, step: float) -> None:
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic_ns", clock)
        runner = standing(
            PretendedJob(clock, cost=lambda n, _: pause if n % epoch == epoch - 1 else step)
        )
        found = first_turn(runner, 0.6)
        assert found is not None
        shorter = found.shortened(found.share)
        assert found.warm_up + LEAST_STEPS <= shorter.executions <= found.executions
        if epoch < 10 and pause > 50 * step:  # three pauses in 32 steps, one of which may be rare
            assert shorter.executions < found.executions


def test_a_job_without_the_plans_settings_tells_of_its_graphs_first() -> None:
    chosen = (Choice("batch_norm", "fused"),)
    section = SettingsPlan(("python",), chosen, "rounding", None, None, (), (), 1.0, None)
    whole = with_sections(plan(), settings=section)
    clock = Clock()
    job = PretendedJob(clock)
    runner = Runner(setting("recommended"), MACHINE, whole)
    runner.begin(job)
    first = runner.greet(job)
    assert "uniform\t2\t1" in first
    assert "discover\t1" in first
    assert "barrier\t1" not in first
    assert runner.graphs == 0
    of_ops = with_sections(
        whole,
        threads=msgspec.structs.replace(
            whole.sections["threads"], ops=(OpPlan("Mul()", 1, "spread", 1e-3, 1e-3, None, ()),)
        ),
    )
    planned = Runner(setting("plan"), MACHINE, of_ops).greet(job)
    assert {"barrier\t1", "target\tstep"} <= set(planned)
    assert "discover\t1" in Runner(setting("plan"), MACHINE, whole).greet(job), "of any graph"


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.floats(1e-3, 10), min_size=1, max_size=8), min_size=1, max_size=6))
def test_with_one_graph_every_execution_is_one_step(turns: list[list[float]]) -> None:
    clock = Clock()
    seconds = [s for turn in turns for s in turn]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic_ns", clock)
        runner = standing(PretendedJob(clock, cost=lambda number, place: seconds[number]))
        for turn in turns:
            clock.pass_(77)
            assert runner.take(len(turn)).steps == pytest.approx(turn)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(2, 9), min_size=1, max_size=6))
def test_a_step_of_two_graphs_holds_both(turns: list[int]) -> None:
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic_ns", clock)
        job = PretendedJob(clock, ("g", "d"), cost=lambda number, place: (0.01, 0.03)[number % 2])
        runner = standing(job, "d", "g")
        for executions in turns:
            clock.pass_(77)
            taken = runner.take(executions)
            assert taken.steps == pytest.approx([0.04] * len(taken.steps))
            assert len(taken.steps) >= executions // 2 - 2
            if taken.per_step:
                assert taken.per_step == pytest.approx(2, rel=0.5)
            assert len(taken.steps) < 3 or taken.per_step == 2


def test_all_graphs_share_what_is_granted(clock: Clock) -> None:
    job = PretendedJob(clock, ("d", "d", "d", "g"))
    runner = standing(job, "d", "g")
    taken = runner.take(16)
    assert job.granted == [16]
    assert taken.per_step == pytest.approx(4 / 3, rel=0.1)


def test_a_job_that_ends_in_its_turn(clock: Clock) -> None:
    runner = standing(PretendedJob(clock, length=5, exit_code=3))
    runner.take(4)
    with pytest.raises(JobEndedError):
        runner.take(4)
    assert runner.ended
    assert runner.exit_code == 3


def test_a_job_that_ended_between_turns(clock: Clock) -> None:
    job = PretendedJob(clock)
    runner = standing(job)
    job.exit_code = 137
    with pytest.raises(JobEndedError):
        runner.take(4)
    assert job.granted == []


class Rank:
    """Another process of the same job, which comes to its first step later."""

    def __init__(self, job: PretendedJob) -> None:
        self.pid = 1
        self.hello = protocol.Plugin(1, "2.21.0", "git", "3.11")
        self.granted: list[list[str]] = []
        self._job = job

    def arrive(self) -> None:
        self._job.queue.append(Event(self, protocol.Waiting(9)))  # type: ignore[arg-type]

    def order(self, lines: list[str]) -> None:
        self.granted.append(lines)
        self._job.queue.append(Event(self, execution(0, 7)))  # type: ignore[arg-type]
        self.arrive()


def test_a_rank_that_comes_late_gets_the_same_grant(clock: Clock) -> None:
    job = PretendedJob(clock)
    runner = standing(job)
    rank = Rank(job)
    runner.greet(rank)  # type: ignore[arg-type]
    grant = job.order

    def order(lines: list[str]) -> None:
        rank.arrive()
        job.order = grant  # type: ignore[method-assign]
        grant(lines)

    job.order = order  # type: ignore[method-assign]
    taken = runner.take(4)
    assert rank.granted == [["grant\t4"]]
    assert taken.steps == pytest.approx([0.01] * 4)
    runner.take(5)
    assert rank.granted == [["grant\t4"], ["grant\t5"]]


def test_confinement_reaches_every_interpreter() -> None:
    hello = protocol.Python(1, ["python"], "3.11", {})
    free = Runner(setting("recommended"), MACHINE, plan())
    confined = Runner(setting("1core", cpus=(1,)), MACHINE, plan())
    assert free.answer(hello) == {"plugin": True}
    assert confined.answer(hello) == {"plugin": True, "cpus": [1]}


def rank_of_two(number: int) -> protocol.Python:
    variables = {"OMPI_COMM_WORLD_LOCAL_RANK": str(number), "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    return protocol.Python(number + 1, ["python"], "3.11", variables)


def test_ranks_share_the_cores_and_their_pools_are_of_their_share(clock: Clock) -> None:
    machine = synthetic.machine(8)
    job = PretendedJob(clock)
    for name, pool in (("recommended", 4), ("default", 4), ("3x1", 3)):
        runner = Runner(dataclasses.replace(setting(name), predicted=1.0), machine, plan())
        assert runner.predicted == 1.0
        shares = [runner.answer(rank_of_two(number))["cpus"] for number in (0, 1)]
        assert sorted(map(sorted, shares)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        for number in (0, 1):
            job.hello = protocol.Plugin(number + 1, "2.21.0", "git", "3.11")
            job.pid = number + 1
            lines = runner.greet(job)  # type: ignore[arg-type]
            assert [line.split("\t")[1] for line in lines if line.startswith("uniform")] == [
                str(pool)
            ]
            assert sum(line.startswith("core\t") for line in lines) == 4
            assert "barrier\t1" in lines
        assert runner.predicted is None


@pytest.mark.parametrize("name", ["as-found", "1core"])
def test_ranks_have_no_shares_where_nothing_is_imposed_or_all_are_on_one_core(name: str) -> None:
    machine = synthetic.machine(8)
    cpus = (0,) if name == "1core" else None
    made = dataclasses.replace(
        setting(name), cpus=cpus, uniform=Uniform(1, 1) if name == "1core" else None
    )
    runner = Runner(made, machine, plan())
    assert runner.answer(rank_of_two(1)).get("cpus") == ([0] if cpus else None)


def test_why_a_job_has_not_come_to_a_step(clock: Clock) -> None:
    runner = Runner(setting("recommended"), MACHINE, plan())
    job = PretendedJob(clock, ("validation",)).boot(runner)
    job.queue.pop()  # it does not wait at the step barrier
    runner.listen(0)
    error = runner.why_not()
    assert isinstance(error, UsageError)
    assert "made for other graphs than those that the job runs (validation)" in str(error)
    job.exit_code = 7
    assert runner.why_not().exit_code == 7
