"""What processes of a job tell of their memory, and what follows from it."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
import synthetic
from told import PYTHON_TOLD, plugin

from dltune.base.errors import DltuneError, UsageError
from dltune.job import protocol
from dltune.job.launch import Event
from dltune.job.rank_layout import Shares
from dltune.plan.plan import new_plan
from dltune.plan.planner import Run
from dltune.systems.memory.enforce import AGAIN, PREFETCH, EnforcedMemory, order_lines
from dltune.systems.memory.section import Memory, Offloaded

HERE = synthetic.machine(2)
MIB = 2**20
SECTION = Memory(
    "step", ("a\\b", "b"), (0, 1, 0), 8 * MIB, 2 * MIB, 9 * MIB, 5 * MIB, 1.0, 0.1, (1,), (1,)
)


def enforced(*, partial: bool = False, section: Memory = SECTION) -> EnforcedMemory:
    plan = new_plan(HERE, signatures=("step",), sections={"memory": section})
    run = Run(plan, HERE, ("python",), {}, partial, lambda _: None, Shares(HERE))
    return EnforcedMemory(section, run)


def graph(*names: str, signature: str = "step") -> protocol.Graph:
    nodes = [protocol.Node(name, "Relu", [], [], False) for name in names]
    return protocol.Graph(0, signature, "", "/device:CPU:0", False, nodes)


def step(peak: int, *levels: int) -> protocol.Execution:
    events = [(node, 0, 0, 0, node, node + 1, "1") for node in range(len(levels))]
    return protocol.Execution(0, 0, 1, 0, 0, 0, peak, events, levels=list(levels))


def hear(section: EnforcedMemory, *told: protocol.Message) -> None:
    process = SimpleNamespace(pid=1, hello=plugin(1))
    section.greet(process)  # type: ignore[arg-type]
    for message in told:
        section.hear(None, Event(process, message))  # type: ignore[arg-type]


REWRITTEN = graph("a\\b", "b", f"a\\b{AGAIN}1")


def test_the_order_is_told_and_bytes_are_counted():
    assert order_lines(SECTION) == [
        "count\t1",
        "run\tstep\ta\\\\b",
        "run\tstep\tb",
        "run\tstep\ta\\\\b",
    ]


def offloading(folder: object) -> Memory:
    """What b gives out is away while a runs again; so is what a does, while b runs."""
    return msgspec.structs.replace(
        SECTION,
        order=(0, 1, 0, 1),
        offloaded=(Offloaded(1, 2, MIB, 1, 2, 3, 3), Offloaded(0, 0, MIB, 0, 1, 2, 3)),
        folder=str(folder),
    )


def test_what_leaves_is_told_where_it_does(tmp_path):
    assert order_lines(offloading(tmp_path)) == [
        "count\t1",
        f"folder\t{tmp_path}",
        "run\tstep\ta\\\\b",
        "offload\tstep\ta\\\\b\t0\t1",
        "offloaded\tstep\t0",
        "run\tstep\tb",
        "offload\tstep\tb\t2\t2",
        "offloaded\tstep\t1",
        "prefetch\tstep\t0\t3",
        "run\tstep\ta\\\\b",
        "prefetch\tstep\t1\t3",
        "run\tstep\tb",
    ]


def test_what_came_back_is_counted(tmp_path):
    section = enforced(section=offloading(tmp_path))
    names = [f"{name}{PREFETCH}{number}" for number, name in enumerate(("a\\b", "b"))]
    again = [f"{name}{AGAIN}1" for name in ("a\\b", "b")]
    hear(section, graph("a\\b", "b", *again, *names), step(6 * MIB))
    assert "offloads 2 of 2 tensors, peak 6.0 MiB" in section.ended(0).sentences[0]
    section = enforced(section=offloading(tmp_path))
    hear(section, graph("a\\b", "b", *again), step(6 * MIB))
    with pytest.raises(UsageError, match="was not rewritten"):
        section.ended(0)


def test_a_folder_that_is_gone_is_told_before_the_job_runs(tmp_path):
    with pytest.raises(UsageError, match=f"tensors to {tmp_path}/gone, which does not exist"):
        enforced(section=offloading(tmp_path / "gone"))


def test_what_a_process_tells():
    section = enforced()
    hear(section, REWRITTEN, step(6 * MIB), step(7 * MIB, MIB, 4 * MIB, 2 * MIB), step(5 * MIB))
    outcome = section.ended(0)
    (kept,) = outcome.document.processes
    assert (kept.again, kept.steps, kept.peak, kept.at) == (1, 3, 7 * MIB, "b")
    assert outcome.sentences == [
        "process 1: recomputes 1 of 1 result, peak 7.0 MiB in 3 steps (planned 7.0 MiB)"
    ]


def test_a_budget_that_was_exceeded_is_told_with_the_op():
    section = enforced()
    hear(section, REWRITTEN, step(9 * MIB, MIB, 4 * MIB, 8 * MIB))
    told = section.ended(0).sentences
    assert told[1] == f"the budget of 8.0 MiB was exceeded by 1,024 KiB, at a\\b{AGAIN}1"


def test_a_graph_that_was_not_rewritten_is_told_with_the_reason():
    """The plugin says why; with --partial the job goes on as it is."""
    complaint = protocol.Complaint("the graph step has no node b, which the plan orders")
    for partial in (False, True):
        section = enforced(partial=partial)
        hear(section, graph("a"), complaint, step(9 * MIB))
        if partial:
            assert section.ended(0).sentences[-1] == complaint.text
        else:
            with pytest.raises(UsageError, match="has no node b"):
                section.ended(0)


def test_an_order_that_was_not_taken_is_refused_too():
    """It has nothing to run again, by which it could be missed. A job that failed has its say."""
    order = msgspec.structs.replace(SECTION, order=(1, 0))
    complaint = protocol.Complaint("in the graph step b waits for a\\b, which the plan runs later")
    section = enforced(section=order)
    hear(section, graph("a\\b", "b"), complaint)
    with pytest.raises(UsageError, match="which the plan runs later"):
        section.ended(0)
    section = enforced(section=order)
    hear(section, graph("a\\b", "b"), complaint)
    assert complaint.text in section.ended(7).sentences


def test_a_job_of_other_graphs_is_refused():
    section = enforced()
    hear(section, graph("a", signature="another"))
    with pytest.raises(UsageError, match="ran the graph that the plan is for, step"):
        section.ended(0)


def test_why_a_job_was_not_reached_at_all_is_told():
    section = enforced()
    with pytest.raises(DltuneError, match="could not attach to the job") as caught:
        section.ended(7)
    assert caught.value.exit_code == 7
    failed = Event(None, protocol.Failed(1, "2.21.0", "no compiler"))
    section.hear(None, PYTHON_TOLD)  # type: ignore[arg-type]
    with pytest.raises(DltuneError, match="no compiler"):
        section.hear(None, failed)  # type: ignore[arg-type]
