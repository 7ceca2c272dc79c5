"""The graph of a profiled step: its tensors, whose memory they are, and what they are."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import synthetic

from dltune.schemas import profile as documents
from dltune.schemas.profile import Node, Step, Tensor
from dltune.simulate import step_graph
from dltune.simulate.step_graph import Kind, lives, peak

SAMPLES = Path(__file__).parents[2] / "schemas" / "samples"


def node(kind: str, inputs=(), slots=(), outputs=(), size=0) -> Node:
    return Node(kind.lower(), kind, 0, inputs, (), size, 1.0, slots=slots, outputs=outputs)


def step(*nodes: Node) -> Step:
    there = synthetic.machine(2)
    return synthetic.profile(there, [synthetic.op("Mul", None, there)], {"s": list(nodes)}).steps[0]


def own(size: int) -> Tensor:
    return Tensor("float", size)


def test_tensors_by_node_and_slot():
    made = step_graph.graph(
        step(
            node("_Arg", outputs=(own(8),)),
            node("ReadVariableOp", (0,), outputs=(own(100),)),
            node("Split", (1,), outputs=(own(40), own(60))),
            node("Reshape", (2,), (1,), (Tensor("float", 60, 0),)),
            node("Relu", (3,), (0,), (Tensor("float", 60, 0),)),
            node("Sum", (4, 2), (0, 0), (own(4),)),
        )
    )
    tensors = made.tensors
    places = list(zip(tensors.producer.tolist(), tensors.slot.tolist(), strict=True))
    assert places == [(0, 0), (1, 0), (2, 0), (2, 1), (3, 0), (4, 0), (5, 0)]
    assert tensors.bytes.tolist() == [8, 100, 40, 60, 60, 60, 4]
    assert tensors.alias.tolist() == [0, 1, 2, 3, 3, 3, 6]
    kinds = [Kind.ARGUMENT, Kind.VARIABLE, *[Kind.RESULT] * 5]
    assert tensors.kind.tolist() == kinds
    assert list(made.reads) == [[], [0], [1], [3], [4], [5, 2]]
    assert list(made.predecessors) == [[], [0], [1], [2], [3], [4, 2]]


def test_without_outputs_a_node_has_one_tensor_and_views_hand_theirs_on():
    """As in a profile of the first schema."""
    nodes = node("_Arg", size=8), node("Identity", (0,), size=8), node("Conv2D", (1,), size=100)
    made = step_graph.graph(step(*nodes, node("_Reshape", (2,), size=100)))
    assert made.tensors.bytes.tolist() == [8, 8, 100, 100]
    assert made.tensors.alias.tolist() == [0, 0, 2, 2]
    assert made.tensors.kind.tolist() == [Kind.ARGUMENT, Kind.ARGUMENT, Kind.RESULT, Kind.RESULT]


def test_the_way_back_of_a_loop_is_waited_for_by_nobody():
    made = step_graph.graph(
        step(
            node("Enter", outputs=(own(4),)),
            node("Merge", (0, 3), outputs=(Tensor("float", 4, 0), own(4))),
            node("Switch", (1,), outputs=(own(0), Tensor("float", 4, 0))),
            node("NextIteration", (2,), (1,), (Tensor("float", 4, 0),)),
        )
    )
    assert list(made.predecessors) == [[], [0], [1], [2]]
    assert made.reads.lists[1] == [0, 5]
    assert made.tensors.alias.tolist() == [0, 0, 2, 3, 0, 0]


def test_what_a_kernel_takes_is_a_tensor_that_nothing_reads():
    made = step_graph.graph(
        step(
            msgspec.structs.replace(node("MatMul", outputs=(own(4),)), scratch=7),
            msgspec.structs.replace(node("Identity", (0,)), scratch=3),
        )
    )
    assert made.tensors.bytes.tolist()[:2] == [4, 7]
    assert made.tensors.bytes.tolist()[3] == 3
    assert made.tensors.alias.tolist() == [0, 1, 0, 3]
    assert made.reads.lists[1] == [0]


def test_a_temporary_variable_is_held_until_it_is_given_out():
    """TensorFlow adds up many tensors in one; the ops on the way hand it on by reference."""
    reference = Tensor("float_ref", 0)
    made = step_graph.graph(
        step(
            node("TemporaryVariable", outputs=(reference,)),
            node("Assign", (0,), outputs=(reference,)),
            node("AssignAdd", (1,), outputs=(reference,)),
            node("DestroyTemporaryVariable", (1,), outputs=(Tensor("float", 8, 0),)),
            node("Relu", (3,), outputs=(own(8),)),
        )
    )
    assert made.tensors.alias.tolist() == [0, 0, 0, 0, 4]
    assert made.tensors.bytes.tolist() == [8, 0, 0, 8, 8]


def test_a_slot_of_a_node_that_told_nothing():
    """A node that did not run, such as one in a branch that was not taken."""
    made = step_graph.graph(step(node("Split"), node("Relu", (0,), (2,), (own(4),))))
    assert made.tensors.bytes.tolist() == [0, 0, 0, 4]
    assert made.reads.lists[1] == [2]


def test_the_peak_of_a_real_step_is_below_the_allocator_s():
    profile = documents.load(SAMPLES / "profile.json.gz")
    (one,) = profile.steps
    made = step_graph.graph(one)
    at = [
        [-1 if moment is None else round(moment * 1e9) for moment in moments]
        for moments in zip(*((n.start, n.end) for n in one.nodes), strict=True)
    ]
    most, _, held = peak(lives(made, *(np.array(moments, np.int64) for moments in at)))
    assert profile.memory is not None
    assert 0.3 < most / (profile.memory.peak - profile.memory.live) < 1.5
    assert made.tensors.bytes[held[0]] == max(made.tensors.bytes[held])
