"""The parts of a step that other processes run."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from told import MS, execution, key, plugin

from dltune.job import protocol
from dltune.job.record import Record
from dltune.profile.processes import answers, peers

SERVER, FIRST, SECOND = "/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1"


def part(pid: int, *graphs: Iterable[tuple[str, str, str]], runs: int = 3) -> Record:
    """A process whose graphs meet others so."""
    made = Record(plugin(pid))
    made.add(key(0, "_Send"))
    for number, meetings in enumerate(graphs):
        nodes = [
            protocol.Node(f"n{i}", "_Send", [], [], True, [], protocol.Partner(*meeting))
            for i, meeting in enumerate(meetings)
        ]
        made.add(protocol.Graph(number, f"{pid}-{number}", "", "", False, nodes))
        for run in range(runs):
            made.add(execution(number, run * MS, [0.001] * len(nodes), keys=[0] * len(nodes)))
    return made


READ, UPDATE = ("edge_1_w", SERVER, FIRST), ("edge_2_g", FIRST, SERVER)
OTHER = ("edge_9_w", SERVER, SECOND)


def test_a_server_and_who_meets_the_measured_one_there_alone():
    worker = part(1, [READ, UPDATE])
    server = part(2, [("edge_1_start", SERVER, FIRST)], [READ, UPDATE, OTHER])
    second, stranger = part(3, [OTHER]), part(4, [("edge_7_x", FIRST, SERVER)])
    found = [(r.process.pid, g) for r, g in peers(worker, [0], [stranger, second, server])]
    assert found == [(2, 1), (3, 0)]


def test_a_graph_that_shares_more_is_the_part():
    """A partial fetch sends some of the same tensors."""
    worker = part(1, [READ, UPDATE])
    server = part(2, [READ], [READ, UPDATE])
    assert [(r.process.pid, g) for r, g in peers(worker, [0], [server])] == [(2, 1)]


def test_two_steps_have_parts_of_their_own():
    worker = part(1, [READ], [UPDATE])
    server = part(2, [UPDATE], [READ])
    assert [g for _, g in peers(worker, [0, 1], [server])] == [1, 0]
    both = part(2, [READ, UPDATE])
    assert [g for _, g in peers(worker, [0, 1], [both])] == [0]


@pytest.mark.parametrize(
    "meets",
    [("all", "", ""), ("edge_1_x", "/job:localhost/task:0/device:CPU:0", "/job:localhost/task:0")],
)
def test_what_stays_in_a_task_is_no_meeting(meets):
    """Ranks call what they send themselves by the same names; a collective has no sender."""
    assert not list(peers(part(1, [meets]), [0], [part(2, [meets])]))


def test_an_answer_waits_for_what_has_come():
    """The parameter does not, and what comes from the same task does not count."""

    def node(kind: str, meets: tuple[str, str, str] | None, *inputs: int) -> protocol.Node:
        met = protocol.Partner(*meets) if meets else None
        return protocol.Node(kind, kind, list(inputs), [], False, [], met)

    done, inside = ("edge_3_done", SERVER, FIRST), ("edge_4_x", SERVER, f"{SERVER}/device:CPU:1")
    nodes = [
        node("ReadVariableOp", None),
        node("_Send", READ, 0),
        node("_Recv", UPDATE),
        node("AssignSub", None),
        node("_Send", done, 3),
        node("_Recv", inside),
        node("_Send", ("edge_5_next", SERVER, FIRST), 5),
    ]
    nodes[3].control.append(2)
    assert answers([protocol.Graph(0, "s", "", "", False, nodes)]) == {done}
