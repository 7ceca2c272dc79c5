"""The profile document put together from what a process told."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
from synthetic import machine
from told import MS, TRAINING, execution, graph, record

from dltune.base.documents import struct_faults
from dltune.job import protocol
from dltune.job.record import Record
from dltune.profile.assembly import Own, _inputs, assemble
from dltune.profile.climb import Climb
from dltune.profile.processes import Meeting
from dltune.schemas.profile import Profile


def profile(
    told: Record,
    own: Own,
    climb: Climb | None = None,
    peers: Sequence[tuple[Record, Own]] = (),
    answers: Collection[Meeting] = (),
) -> Profile:
    made = assemble(
        told,
        own,
        climb or Climb([(1, "spread"), (2, "spread")]),
        None,
        None,
        machine=machine(2),
        command=["python"],
        interval=1,
        partial=None,
        notes=["a note"],
        peers=peers,
        answers=answers,
    )
    assert not struct_faults("", made)
    return made


def test_warm_up_is_left_out_as_far_as_others_are_left():
    slow, usual = [0.5], [0.01]
    told = record(
        [graph(0, ["Conv2D"])],
        [execution(0, i * 1000 * MS, slow if i < 3 else usual) for i in range(10)],
    )
    own = Own.of(told, [0], 3)
    assert len(own.executions[0]) == 7
    assert own.seconds == {"Conv2D(float[0])": pytest.approx([0.01] * 7)}
    assert own.walls[0] == pytest.approx([1.0] * 6)
    short = record([graph(0, ["Conv2D"])], [execution(0, i * MS, slow) for i in range(2)])
    assert len(Own.of(short, [0], 3).executions[0]) == 1


def test_warm_up_that_has_been_forgotten_is_not_left_out_twice():
    told = record([graph(0, ["Conv2D"])], [execution(0, i * 1000 * MS, [0.01]) for i in range(100)])
    assert len(Own.of(told, [0], 3).executions[0]) == len(told.executions[0])


def test_one_execution_has_its_span_for_its_wall():
    told = record([graph(0, ["Conv2D"])], [execution(0, 0, [0.25])])
    assert Own.of(told, [0], 3).walls[0] == [0.25]


def test_an_op_in_a_loop_repeats():
    told = record([graph(0, ["Enter", "Conv2D"])])
    for number in range(4):
        once = execution(0, number * 1000 * MS, [0.01, 0.02])
        again = [(1, 1, 0, 0, s * MS, (s + 20) * MS, "1") for s in (50, 80)]
        once.events.extend(again)
        told.add(once)
    found = profile(told, Own.of(told, [0], 1))
    enter, conv = found.steps[0].nodes
    assert (enter.repeats, conv.repeats) == (1, 3)
    assert (conv.start, conv.end) == (pytest.approx(0.01), pytest.approx(0.1))
    assert {op.count for op in found.ops} == {1, 3}


def test_a_node_that_never_ran_has_no_op():
    told = record([graph(0, ["Const", "Conv2D"])])
    for number in range(3):
        ran = execution(0, number * 1000 * MS, [0.0, 0.02])
        del ran.events[0]
        told.add(ran)
    const, conv = profile(told, Own.of(told, [0], 1)).steps[0].nodes
    assert (const.op, const.repeats, const.start) == (None, 0, None)
    assert conv.op == 0


def test_a_smaller_last_batch_does_not_change_a_nodes_op():
    told = record([graph(0, ["Conv2D"])])
    for number in range(9):
        last = number % 3 == 2
        told.add(execution(0, number * 1000 * MS, [0.001 if last else 0.01], keys=[int(last)]))
    found = profile(told, Own.of(told, [0], 0))
    assert [op.key for op in found.ops] == ["Conv2D(float[0])"]
    assert found.ops[0].own == pytest.approx(0.01)


def test_steps_share_the_time_and_the_ops():
    told = record(
        [graph(0, TRAINING, "a"), graph(1, TRAINING, "b")],
        [execution(g, (i * 2 + g) * 1000 * MS, [0.01 * (g * 2 + 1)] * 4)
         for i in range(5) for g in (0, 1)],
    )  # fmt: skip
    found = profile(told, Own.of(told, [1, 0], 1))
    assert [step.signature for step in found.steps] == ["b", "a"]
    assert [step.share for step in found.steps] == pytest.approx([0.75, 0.25])
    assert len(found.ops) == 4
    assert {op.count for op in found.ops} == {2}


def test_ops_of_peers_are_there_and_do_not_count():
    told = record([graph(0, ["Conv2D"])], [execution(0, i * 1000 * MS, [0.01]) for i in range(5)])
    server = record(
        [graph(0, ["Conv2D", "MatMul"], "server", device="/job:ps/task:0/device:CPU:0")],
        [execution(0, i * 1000 * MS, [0.02, 0.03]) for i in range(5)],
    )
    found = profile(told, Own.of(told, [0], 1), peers=[(server, Own.of(server, [0], 1))])
    assert [(step.signature, step.share) for step in found.peers] == [("server", 1.0)]
    assert [node.op for node in found.peers[0].nodes] == [0, 1]
    assert [(op.count, op.own) for op in found.ops] == [
        (1, pytest.approx(0.01)),  # as the measured process ran it
        (0, pytest.approx(0.03)),
    ]


def test_a_receive_tells_whether_it_is_an_answer():
    meets = ("edge_1_x", "/job:ps/task:0", "/job:worker/task:0")
    nodes = [
        protocol.Node(kind, kind, [], [], True, [], protocol.Partner(*meets))
        for kind in ("_Recv", "_Send")
    ]
    told = record(
        [protocol.Graph(0, "s", "", "", False, nodes)],
        [execution(0, i * 1000 * MS, [0.01, 0.01]) for i in range(5)],
    )
    for answers, found in (((), [False, False]), ((meets,), [True, False])):
        made = profile(told, Own.of(told, [0], 1), answers=answers)
        partners = [node.partner for node in made.steps[0].nodes]
        assert [partner.answer for partner in partners if partner] == found


def test_what_was_measured_is_sorted_and_summed_up():
    told = record([graph(0, ["Conv2D"])], [execution(0, i * 1000 * MS, [0.01]) for i in range(5)])
    told.add(protocol.OutputBytes(0, 4096))
    climb = Climb([(1, "spread"), (2, "spread"), (2, "shared")])
    for seconds in ([3.0, 1.0, 2.0], [5.0], [0.5]):
        for each in seconds:
            climb.add("Conv2D(float[0])", each)
        climb.advance()
    (op,) = profile(told, Own.of(told, [0], 1), climb).ops
    assert [(t.threads, t.placement, t.samples, t.min, t.median) for t in op.times] == [
        (1, "spread", 3, 1.0, 2.0),
        (2, "shared", 1, 0.5, 0.5),
        (2, "spread", 1, 5.0, 5.0),
    ]
    assert op.times[0].spread == pytest.approx(0.25)
    assert op.output_bytes == 4096


def test_settings_memory_and_notes():
    told = record([graph(0, ["Conv2D"])], [execution(0, i * 1000 * MS, [0.01]) for i in range(5)])
    told.add(protocol.Device(3, 4, 3, 4))
    told.add(protocol.Complaint("a complaint"))
    found = profile(told, Own.of(told, [0], 1))
    assert (found.settings.intra, found.settings.inter) == (3, 4)
    assert found.memory is not None
    assert (found.memory.live, found.memory.peak) == (1000, 5000)
    assert (found.notes[0], found.notes[-1]) == ("a note", "a complaint")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ()),
        ("float[64,8]", ("float[64,8]",)),
        ("float[64,8],int32[2],float[]", ("float[64,8]", "int32[2]", "float[]")),
        ("resource[],none,float[2]", ("resource[]", "none", "float[2]")),
    ],
)
def test_inputs_of_a_key(text, parts):
    assert _inputs(text) == parts


def test_the_heaviest_ops():
    own = Own((), {}, {}, {"a": [5.0, 1.0], "b": [3.0], "c": [1.0]}, {})
    assert own.heaviest(0.5) == ["a"]
    assert own.heaviest(0.9) == ["a", "b"]
    assert own.heaviest(1.0) == ["a", "b", "c"]
    assert Own((), {}, {}, {}, {}).heaviest(0.9) == []
