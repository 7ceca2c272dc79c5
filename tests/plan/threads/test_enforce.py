"""Which processes of a job get their ops' threads from a plan."""

from __future__ import annotations

import msgspec
import pytest
import synthetic
from told import MS, TRAINING, execution, graph, key, plugin

from dltune.base.errors import UsageError
from dltune.job import protocol
from dltune.job.launch import Event
from dltune.job.rank_layout import Shares
from dltune.plan.plan import merge_section, new_plan
from dltune.plan.planner import Run
from dltune.plan.threads.enforce import EnforcedThreads
from dltune.schemas.plan import OpPlan, Prediction, Threads, Uniform

HERE = synthetic.machine(2)
THREADS = Threads(
    "per-op",
    Uniform(2, 1),
    False,
    False,
    0.0,
    (OpPlan("Conv2D", 2, "spread", 1.0, 2.0),),
    (Prediction("per-op", 1.0, 1.0, 1.0),),
)


class Process:
    def __init__(self, pid: int) -> None:
        self.pid, self.hello, self.orders = pid, plugin(pid), list[str]()

    def order(self, lines: list[str]) -> None:
        self.orders += lines


def enforced(*tasks: str) -> tuple[EnforcedThreads, list[str]]:
    plan = new_plan(HERE, signatures=("step",), tasks=tasks, sections={"threads": THREADS})
    said: list[str] = []
    run = Run(plan, HERE, ("python",), {}, False, said.append, Shares(HERE))
    return EnforcedThreads(THREADS, run), said


def train(section: EnforcedThreads, process: Process, told: protocol.Graph) -> None:
    section.greet(process)  # type: ignore[arg-type]
    for number in range(4):
        keys = [key(number, "Conv2D")] if number < len(TRAINING) else []
        for message in (told, *keys):
            section.hear(None, Event(process, message))  # type: ignore[arg-type]
    for number in range(6):
        ran = execution(0, number * 1000 * MS, [0.01] * 4)
        section.hear(None, Event(process, ran))  # type: ignore[arg-type]


def test_a_server_beside_the_planned_worker_is_left_alone():
    section, said = enforced("/job:worker/task:0")
    server = Process(1)
    train(section, server, graph(0, TRAINING, "its own", device="/job:ps/task:0/device:CPU:0"))
    (sentence,) = said
    assert sentence.startswith(
        "pid 1 runs the task /job:ps/task:0, but the plan's threads are for /job:worker"
    )
    assert not any(line.startswith(("op\t", "target\t")) for line in server.orders)
    assert "discover\t1" not in server.orders
    assert section.ended(0).document == []


@pytest.mark.parametrize("tasks", [(), ("/job:ps/task:0",)])
def test_another_graph_of_the_planned_task_is_refused(tasks):
    section, _ = enforced(*tasks)
    other = graph(0, TRAINING, "its own", device="/job:ps/task:0/device:CPU:0")
    with pytest.raises(UsageError, match="the plan was made for other graphs"):
        train(section, Process(1), other)


def test_a_plan_knows_the_tasks_of_its_profile():
    made = synthetic.network(HERE, layers=1)
    assert merge_section(None, "threads", THREADS, HERE, made).tasks == ()
    for device, tasks in (
        ("/job:worker/replica:0/task:1", ("/job:worker/task:1",)),
        ("/job:localhost/task:0", ()),
    ):
        steps = tuple(msgspec.structs.replace(s, device=device) for s in made.steps)
        its = msgspec.structs.replace(made, steps=steps)
        assert merge_section(None, "threads", THREADS, HERE, its).tasks == tasks
