"""A plan's order of transfers is in force under the plan alone; E is told of every setting."""

from __future__ import annotations

import json

import msgspec
import pytest
import synthetic
from pretended import Clock, PretendedJob, plan, setting
from served import SERVER, WORKER, device
from told import MS, plugin

from dltune.base.errors import UsageError
from dltune.bench.contestants import settings, usual
from dltune.bench.runner import Runner
from dltune.bench.step_times import chosen
from dltune.job import protocol
from dltune.job.record import Record
from dltune.plan.plan import new_plan, with_sections
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Candidate, OpPlan, Plan, Prediction, Threads, Uniform
from dltune.systems.transfers.section import Receiver, Transfer, Transfers
from dltune.turns.rounds import Rounds

MACHINE = synthetic.machine(2)
SENT = (Transfer("b", SERVER, 4, 2e-3), Transfer("a", SERVER, 4, 1e-3))
PLAN = with_sections(plan(), transfers=Transfers("tac", (Receiver(WORKER, "step", SENT),)))


def graph(kind: str, *tensors: str) -> protocol.Graph:
    """An op reads what comes."""
    nodes = [
        protocol.Node(name, kind, [], [], True, [],
                      protocol.Partner(f"edge_3_{name}", device(SERVER), device(WORKER)))
        for name in tensors
    ]  # fmt: skip
    nodes.append(protocol.Node("op", "MatMul", list(range(len(nodes))), [], False))
    return protocol.Graph(0, "step", "step", "CPU:0", False, nodes)


class Worker(PretendedJob):
    """Two tensors come in 3 ms; an op of 1 ms begins later by as many as the step's place in its
    turn."""

    def _tell(self, message: protocol.Message) -> None:
        made = graph("_Recv", "a", "b")
        super()._tell(made if isinstance(message, protocol.Graph) else message)

    def _execute(self, place: int) -> None:
        super()._execute(place)
        spans = ((0, -1, 0, 2), (1, -1, 0, 3), (2, 1, 3 + place, 4 + place))
        events = [(node, 0, n, 0, start * MS, end * MS, "1") for node, n, start, end in spans]
        self._open[0] = msgspec.structs.replace(self._open[0], events=events)


def test_every_step_but_the_first_of_a_turn_has_its_efficiency(clock: Clock) -> None:
    runners = [Runner(setting(name), MACHINE, PLAN) for name in ("as-found", "plan")]
    rounds = Rounds(
        runners, rounds=2, seconds=0.03, patience=0, tell=lambda _: None, keep=lambda: None
    )
    for runner in runners:
        Worker(clock).boot(runner)
    rounds.run()
    for turns in rounds.turns.values():
        for turn in turns:
            assert len(turn.steps) == 3
            # 4 ms if nothing overlaps, 3 at the least
            assert turn.scheduling == (-1.0, -2.0, -3.0)


def test_steps_without_planned_transfers_have_none(clock: Clock) -> None:
    runner = Runner(setting("as-found"), MACHINE, plan())
    Worker(clock).boot(runner)
    runner.listen(0)
    assert runner.take(4).scheduling == ()


def test_the_order_is_in_force_under_the_plan_alone(clock: Clock) -> None:
    lines = [f"send\t{WORKER}\tb", f"send\t{WORKER}\ta"]
    for name, sent in (("plan", lines), ("as-found", []), ("1core", [])):
        job = Worker(clock).boot(Runner(setting(name), MACHINE, PLAN))
        assert [line for line in job.first_orders if line.startswith("send")] == sent


def test_another_cluster_is_refused_under_the_plan() -> None:
    told = json.dumps({"cluster": {"worker": ["a:1"], "ps": ["b:1", "c:1"]}})
    python = protocol.Python(1, ["python"], "3.11.0", {"TF_CONFIG": told})
    Runner(setting("plan"), MACHINE, PLAN).answer(python)
    Runner(setting("as-found"), MACHINE, PLAN).answer(python)
    told = json.dumps({"cluster": {"worker": ["a:1"], "chief": ["b:1"]}})
    python = msgspec.structs.replace(python, environment={"TF_CONFIG": told})
    Runner(setting("as-found"), MACHINE, PLAN).answer(python)
    with pytest.raises(UsageError, match="differs from the cluster that the transfers are planned"):
        Runner(setting("plan"), MACHINE, PLAN).answer(python)


def test_tensors_that_nobody_sends_are_told() -> None:
    def faults(name: str, *graphs: protocol.Graph) -> list[str]:
        runner = Runner(setting(name), MACHINE, PLAN)
        record = runner.sightings.records[1] = Record(plugin())
        for number, one in enumerate(graphs):
            record.add(msgspec.structs.replace(one, id=number))
        return list(runner.faults)

    assert faults("plan", graph("_Send", "a", "b", "c")) == []
    told = "no process of the job sends 1 of 2 planned tensors"
    assert faults("plan", graph("_Send", "a"), graph("_Recv", "a", "b")) == [told]
    assert faults("as-found", graph("_Send", "c")) == []


def co_running(machine: Machine, *ops: OpPlan) -> Plan:
    """A plan for these ops, of another strategy than uniform settings."""
    names = ("uniform 4x2", "per-type+co-run")
    predictions = tuple(Prediction(name, 1.0, 1.0, 1.0) for name in names)
    section = Threads("per-type+co-run", Uniform(4, 2), True, False, 1e-5, ops, predictions)
    return new_plan(machine, signatures=("a", "b"), sections={"threads": section})


def test_a_plan_of_transfers_leaves_threads_as_they_are() -> None:
    """E is computed from recorded ops, so that every setting has them recorded."""
    machine = synthetic.machine(8, hardware=2, sockets=2)
    op = OpPlan("Conv2D", 4, "spread", 0.5, 1.0, None, (Candidate(4, "spread", 0.5),))
    section = Transfers("tac", (Receiver("/job:worker/task:0", "a", ()),))
    alone = msgspec.structs.replace(co_running(machine), sections={"transfers": section})
    assert usual(alone) == ("as-found", "plan")
    own, planned = settings(usual(alone), alone, machine)
    assert own.lines() == planned.lines()
    assert planned.orders.events
    both = with_sections(co_running(machine, op), transfers=section)
    assert usual(both) == usual(co_running(machine, op))
    assert all(one.orders.events for one in settings(usual(both), both, machine))
    assert list(chosen(both)) == ["per-type+co-run", "transfers tac"]
