"""What processes of a job tell of their transfers, and what follows from it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from types import SimpleNamespace

import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st
from served import SERVER, WORKER, device
from told import MS, PYTHON_TOLD, plugin

from dltune.base.errors import DltuneError, UsageError
from dltune.job import protocol
from dltune.job.launch import Event
from dltune.job.rank_layout import Shares
from dltune.plan.plan import new_plan
from dltune.plan.planner import Run
from dltune.systems.transfers.enforce import (
    EnforcedTransfers,
    cluster_tasks,
    efficiency,
    require_planned,
    stragglers,
)
from dltune.systems.transfers.section import Receiver, Transfer, Transfers

HERE = synthetic.machine(2)
SENT = (Transfer("b", SERVER, 4, 2e-3), Transfer("a", SERVER, 4, 1e-3))
PLANNED = Receiver(WORKER, "step", SENT)


def enforced(section: Transfers, *, partial: bool = False) -> EnforcedTransfers:
    plan = new_plan(HERE, signatures=("step",), sections={"transfers": section})
    run = Run(plan, HERE, ("python",), {}, partial, lambda _: None, Shares(HERE))
    return EnforcedTransfers(section, run)


def graph(
    here: str, kind: str, tensors: Iterable[str], signature: str = "step", receiver: str = WORKER
) -> protocol.Graph:
    """`kind`: _Send or _Recv. An op reads what comes."""
    nodes = [
        protocol.Node(
            name, kind, [], [], True, [],
            protocol.Partner(f"edge_3_{name}", device(SERVER), device(receiver)),
        )
        for name in tensors
    ]  # fmt: skip
    nodes.append(protocol.Node("op", "MatMul", list(range(len(nodes))), [], False))
    return protocol.Graph(0, signature, "", device(here), False, nodes)


def step(start: int, *events: tuple[int, int, int, int]) -> protocol.Execution:
    """Events: node, threads, start and end, in milliseconds."""
    told = [(node, 0, n, 0, a * MS, b * MS, "1") for node, n, a, b in events]
    return protocol.Execution(0, 0, 2, start * MS, 0, 0, 0, told)


def hear(section: EnforcedTransfers, pid: int, *told: protocol.Message) -> None:
    process = SimpleNamespace(pid=pid, hello=plugin(pid))
    section.greet(process)  # type: ignore[arg-type]
    for message in told:
        section.hear(None, Event(process, message))  # type: ignore[arg-type]


# both receives, the second 1 ms after the first, then the op
RECORDED = ((0, -1, 0, 2), (1, -1, 0, 3), (2, 0, 3, 5))


def test_what_server_and_worker_tell():
    section = enforced(Transfers("tac", (PLANNED,)))
    hear(section, 1, graph(SERVER, "_Send", ["a", "b", "unplanned"]))
    hear(section, 2, graph(WORKER, "_Recv", "ab"), step(0), step(10, *RECORDED), step(30))
    outcome = section.ended(0)
    (worker,), (server,) = outcome.document.workers, outcome.document.servers
    assert (worker.steps, worker.recorded) == (3, 1)
    assert worker.median == pytest.approx(0.015)
    # 3 ms of transfers and then 2 ms of an op: nothing overlapped
    assert worker.efficiency == 0.0
    assert (server.tensors, server.planned) == (2, 2)
    assert f"{SERVER} sent {WORKER} 2 of 2 planned tensors in the order tac" in outcome.sentences
    assert "3 steps, median 15.0 ms" in outcome.sentences[1]
    assert "efficiency 0.00 (worst 0.00) in 1 recorded step" in outcome.sentences[1]


def test_a_server_alone_tells_what_it_sent():
    """Each task may run under a dltune of its own."""
    section = enforced(Transfers("tac", (PLANNED,)))
    hear(section, 1, graph(SERVER, "_Send", ["a"]))
    assert section.ended(0).sentences == [
        f"{SERVER} sent {WORKER} 1 of 2 planned tensors in the order tac"
    ]


def test_a_job_of_other_graphs_is_refused():
    other = graph(WORKER, "_Recv", ["a", "c"], "another")
    section = enforced(Transfers("tac", (PLANNED,)))
    hear(section, 1, graph(SERVER, "_Send", ["a"]))
    hear(section, 2, other)
    told = "that the plan is not for, such as another, which receive 1 of 2 planned tensors"
    with pytest.raises(UsageError, match=told):
        section.ended(0)
    for others in ([graph(SERVER, "_Send", ["a"])], []):
        section = enforced(Transfers("tac", (PLANNED,)), partial=True)
        hear(section, 1, *others)
        hear(section, 2, other)
        assert any(told in sentence for sentence in section.ended(0).sentences)


def test_a_job_without_the_plans_tensors_is_refused():
    section = enforced(Transfers("tac", (PLANNED,)))
    hear(section, 1, graph(SERVER, "_Send", ["c"]))
    with pytest.raises(UsageError, match="no process of the job sent or received"):
        section.ended(0)


def test_why_a_job_was_not_reached_at_all_is_told():
    """It fails as the job did."""
    section = enforced(Transfers("tac", (PLANNED,)))
    with pytest.raises(DltuneError, match="could not attach to the job") as caught:
        section.ended(7)
    assert caught.value.exit_code == 7
    failed = Event(None, protocol.Failed(1, "2.21.0", "no compiler"))
    section.hear(None, PYTHON_TOLD)  # type: ignore[arg-type]
    with pytest.raises(DltuneError, match="no compiler"):
        section.hear(None, failed)  # type: ignore[arg-type]


def test_a_complaint_of_the_plugin_stands_in_the_outcome():
    section = enforced(Transfers("tac", (PLANNED,)))
    complaint = protocol.Complaint("that step went on without an order")
    hear(section, 1, graph(SERVER, "_Send", ["a"]), complaint, complaint)
    assert section.ended(0).sentences[1:] == ["that step went on without an order"]


def test_a_worker_that_also_ran_other_graphs_is_the_planned_one():
    section = enforced(Transfers("tac", (PLANNED,)))
    told = [graph(WORKER, "_Recv", "ab"), step(0), graph(WORKER, "_Recv", "a", "partial fetch")]
    hear(section, 2, *told)
    (worker,) = section.ended(0).document.workers
    assert (worker.steps, worker.median, worker.efficiency) == (1, None, None)


def test_each_server_is_held_to_what_is_planned_from_it():
    both = Receiver(WORKER, "step", (*SENT, Transfer("c", "/job:ps/task:1", 4, None)))
    section = enforced(Transfers("tac", (both,)))
    hear(section, 1, graph(SERVER, "_Send", "a"))
    (server,) = section.ended(0).document.servers
    assert (server.tensors, server.planned) == (1, 2)


def test_a_server_that_sends_what_another_should():
    """As when the job has fewer servers than planned for, and no TF_CONFIG tells so in time."""
    both = Receiver(WORKER, "step", (*SENT, Transfer("c", "/job:ps/task:1", 4, None)))
    why = f"{SERVER} sends {WORKER} tensors that are planned to come from /job:ps/task:1"
    for here, kind in ((SERVER, "_Send"), (WORKER, "_Recv")):
        section = enforced(Transfers("tac", (both,)))
        hear(section, 1, graph(here, kind, "abc"))
        with pytest.raises(UsageError, match=why):
            section.ended(0)
    section = enforced(Transfers("tac", (both,)), partial=True)
    hear(section, 1, graph(SERVER, "_Send", "abc"))
    outcome = section.ended(0).document
    assert outcome.left == (why,)
    assert [(one.tensors, one.planned) for one in outcome.servers] == [(3, 3)]


def test_workers_that_wait_for_each_other():
    other = Receiver("/job:worker/task:1", "other", SENT)
    section = enforced(Transfers("tac", (PLANNED, other)))
    hear(section, 1, graph(WORKER, "_Recv", "ab"), step(0, *RECORDED), step(9, *RECORDED))
    slow = ((0, -1, 0, 2), (1, -1, 0, 3), (2, 0, 3, 10))
    hear(section, 2, graph(other.task, "_Recv", "ab", "other"), step(0, *slow), step(9, *slow))
    outcome = section.ended(0)
    assert outcome.document.waits == 0.5
    assert outcome.sentences[-1].startswith("the fastest worker took 50% less time per step")
    assert stragglers([[1.0, 2.0]]) is None
    assert stragglers([[], [1.0]]) is None


@given(
    st.lists(
        st.tuples(st.sampled_from((-1, 0, 2)), st.integers(0, 30), st.integers(0, 9)),
        min_size=1,
        max_size=8,
    )
)
def test_efficiency_is_what_overlaps_of_the_shorter_of_computing_and_transfers(ops):
    """Several ops at a time, too: the bounds are of the time in which any ran."""
    events = [(2, threads, start, start + length) for threads, start, length in ops]
    events += [(0, -1, 0, 2), (1, -1, 0, 3)]
    busy = {ms for _, n, start, end in events if n >= 0 for ms in range(start, end)}
    found = efficiency(step(0, *events), graph(WORKER, "_Recv", "ab"), PLANNED)
    assert found is not None
    length = max(end for *_, end in events)
    upper, lower = len(busy) + 3, max(len(busy), 3)
    assert found.own == pytest.approx((upper - length) / (upper - lower) if busy else 1.0)
    assert found.own <= 1.0
    assert found.apart == pytest.approx(found.own)  # the plan's times are as long


def test_delays_lower_e_by_the_times_of_the_plan_alone():
    """An op of 2 ms after a, which comes later and later. By the arrivals of that very step, it
    overlaps with transfers as well as before."""
    found = [
        efficiency(
            step(0, (0, -1, 0, 2 + late), (1, -1, 0, 3 + late), (2, 0, 2 + late, 4 + late)),
            graph(WORKER, "_Recv", "ab"),
            PLANNED,
        )
        for late in (0, 1, 4)
    ]
    assert [one.own for one in found] == [0.5, 0.5, 0.5]
    assert [one.apart for one in found] == [0.5, 0.0, -1.5]
    assert [one.lower for one in found] == [0.5, 0.0, -1.5]


def test_servers_send_side_by_side():
    """Each from the step's begin, until its last has come."""
    two = Receiver(WORKER, "step", (SENT[0], Transfer("a", "/job:ps/task:1", 4, None)))
    ran = step(0, (0, -1, 0, 4), (1, -1, 0, 6), (2, 2, 6, 8))
    # 2 ms of computing; b comes in 6 ms, a in 4 beside it: 12 ms one after the other, 6 at least
    found = efficiency(ran, graph(WORKER, "_Recv", "ab"), two)
    assert found == (pytest.approx((12 - 8) / (12 - 6)), None)


def test_a_tensor_that_is_waited_for_besides_is_counted_once():
    twice = protocol.Graph(
        0, "step", "", device(WORKER), False, graph(WORKER, "_Recv", "aab").nodes
    )
    ran = step(0, (0, -1, 0, 2), (1, -1, 0, 2), (2, -1, 0, 3), (3, 0, 3, 5))
    assert efficiency(ran, twice, PLANNED) == (0.0, 0.0)


def test_a_step_that_was_given_up_has_no_efficiency():
    """Receives end then, too; what reads them does not run."""
    section = enforced(Transfers("tac", (PLANNED,)))
    given_up = step(0, (0, -1, 0, 1), (1, -1, 0, 1))
    hear(section, 2, graph(WORKER, "_Recv", "ab"), given_up, step(9, *RECORDED), given_up)
    (worker,) = section.ended(0).document.workers
    assert (worker.steps, worker.recorded, worker.worst) == (3, 1, 0.0)


def test_no_efficiency_where_nothing_planned_came():
    assert efficiency(step(0), graph(WORKER, "_Recv", "ab"), PLANNED) is None
    assert efficiency(step(0, *RECORDED), graph(WORKER, "_Recv", "cd"), PLANNED) is None


@pytest.mark.parametrize(
    ("told", "names"),
    [
        ({"cluster": {"ps": ["a:1", "a:2"], "chief": ["a:3"]}}, {"ps/0", "ps/1", "chief/0"}),
        ({"cluster": {"worker": {"4": "a:1"}}}, {"worker/4"}),
        ({"cluster": {}}, set()),
        ({"task": {}}, set()),
        ([1], set()),
        ({"cluster": 3}, set()),
    ],
)
def test_tasks_of_a_cluster(told, names):
    found = {
        name.replace("/job:", "").replace("/task:", "/") for name in cluster_tasks(_told(told))
    }
    assert found == names


def _told(config: object) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps(config)}


def test_a_cluster_that_is_not_told_of_is_not_looked_at():
    for environment in ({}, {"TF_CONFIG": "no JSON"}):
        assert not cluster_tasks(environment)
        require_planned(Transfers("tac", (PLANNED,)), environment)


def test_another_cluster_is_refused_before_the_job_goes_on():
    ours = {"ps": ["a:1"], "worker": ["a:2"], "chief": ["a:3"]}
    section = enforced(Transfers("tac", (PLANNED,)))
    python = protocol.Python(1, ["python"], "3.11", _told({"cluster": ours}))
    assert section.answer(python) == {}
    other = _told({"cluster": {"ps": ["a:1"], "worker": ["a:2", "a:4"]}})
    more = protocol.Python(1, ["python"], "3.11", other)
    with pytest.raises(UsageError, match="it also has /job:worker/task:1") as caught:
        section.answer(more)
    assert "--workers N" in (caught.value.remedy or "")
    assert enforced(Transfers("tac", (PLANNED,)), partial=True).answer(more) == {}
    # a server that holds nothing for this worker
    idle = {"cluster": {"ps": ["a:1", "a:2"], "worker": ["a:3"]}}
    require_planned(Transfers("tac", (PLANNED,)), _told(idle))
    with pytest.raises(UsageError, match="it lacks /job:ps/task:0, /job:worker/task:0"):
        require_planned(Transfers("tac", (PLANNED,)), _told({"cluster": {"chief": ["a:1"]}}))
