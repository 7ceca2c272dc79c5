"""Graphs as documents: there and back, and what no graph can be."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from drawn import graphs
from hypothesis import given

from dltune.base.documents import decode, struct_faults
from dltune.base.errors import UsageError
from dltune.schemas import graph as documents
from dltune.schemas import profile as profiles
from dltune.schemas.graph import Node, Op, Tensor, Way
from dltune.simulate import graph_document, step_graph
from dltune.simulate.step_graph import Kind, StepGraph, cyclic

SAMPLES = Path(__file__).parents[2] / "schemas" / "samples"
WAYS = (Way(1, "spread", 2e-3), Way(2, "shared", 1.1e-3))
# a step that reads a variable, splits what it makes of it, and hands one part on
SMALL = {
    "schema": documents.SCHEMA,
    "ops": [
        {"key": "MatMul(f32[4])", "ways": [{"threads": 1, "placement": "spread", "seconds": 0.25}]},
        {"key": "Split"},
    ],
    "nodes": [
        {"name": "weights", "type": "VarHandleOp"},
        {"name": "product", "op": 0, "inputs": [0, 0], "device": "/job:a/task:0/device:CPU:0"},
        {"name": "split", "op": 1, "inputs": [1]},
        {"name": "relu", "inputs": [3], "control": [0]},
    ],
    "tensors": [
        {"node": 0, "slot": 0, "bytes": 64, "kind": "variable", "dtype": "float"},
        {"node": 1, "slot": 0, "bytes": 32},
        {"node": 2, "slot": 0, "bytes": 16},
        {"node": 2, "slot": 1, "bytes": 16},
        {"node": 3, "slot": 0, "bytes": 16, "alias": 3},
    ],
}


def arrays(made: StepGraph) -> dict[str, tuple[str, list[float]]]:
    t = made.tensors
    found = {
        **{name: getattr(made, name) for name in ("op", "runs", "back")},
        **{name: getattr(t, name) for name in ("producer", "slot", "bytes", "alias", "kind")},
        "reads": made.reads.items, "reads.offsets": made.reads.offsets,
        "control": made.control.items, "control.offsets": made.control.offsets,
    }  # fmt: skip
    return {name: (array.dtype.name, array.tolist()) for name, array in found.items()}


def decoded(data: bytes) -> documents.Graph:
    kind, schema = documents.Graph, documents.SCHEMA
    return decode(data, kind, schema, "graph.json")


@given(graphs())
def test_there_and_back(step):
    owned = dataclasses.replace(step.tensors, kind=step.tensors.kind[step.tensors.alias])
    step = dataclasses.replace(step, tensors=owned, op=step.op - 1, runs=step.runs / 3)
    written = graph_document.document(step, [Op(f"op {k}", WAYS) for k in range(len(step))])
    data = msgspec.json.encode(written)
    if cyclic(step):
        with pytest.raises(UsageError, match="nodes must not wait for each other in a cycle"):
            decoded(data)
        return
    again = graph_document.graph(decoded(data))
    assert arrays(again) == arrays(step)
    assert list(again.names) == list(step.names)
    assert graph_document.document(again, written.ops) == written


def test_a_graph_made_by_hand(tmp_path):
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(SMALL))
    found = documents.load(path)
    made = graph_document.graph(found)
    assert list(made.names) == ["weights", "product", "split", "relu"]
    assert made.op.tolist() == [-1, 0, 1, -1]
    assert made.tensors.alias.tolist() == [0, 1, 2, 3, 3]
    assert made.tensors.kind.tolist() == [Kind.VARIABLE, *[Kind.RESULT] * 4]
    assert list(made.predecessors) == [[], [0], [1], [2, 0]]


def test_a_profiled_step_as_a_document():
    profile = profiles.load(SAMPLES / "profile.json.gz")
    (step,) = profile.steps
    written = graph_document.of_step(step, profile.ops)
    again = decoded(msgspec.json.encode(written))
    assert arrays(graph_document.graph(again)) == arrays(step_graph.graph(step))
    assert [node.type for node in again.nodes] == [node.type for node in step.nodes]
    assert [op.key for op in again.ops] == [op.key for op in profile.ops]
    times = {(t.threads, t.placement): t.min for t in profile.ops[0].times}
    assert {(w.threads, w.placement): w.seconds for w in again.ops[0].ways} == times


def test_a_profiled_step_tells_types_of_tensors():
    told = (profiles.Tensor("float", 8), profiles.Tensor("int32", 4))
    node = profiles.Node("split", "Split", None, (), (), 12, 1.0, outputs=told)
    profile = profiles.load(SAMPLES / "profile.json.gz")
    step = msgspec.structs.replace(profile.steps[0], nodes=(node,), device="/device:CPU:0")
    written = graph_document.of_step(step, ())
    assert [(t.slot, t.dtype, t.bytes) for t in written.tensors] == [
        (0, "float", 8),
        (1, "int32", 4),
    ]
    assert written.nodes[0].device == "/device:CPU:0"


def test_the_way_back_of_a_loop_is_marked():
    nodes = Node("merge", inputs=(1,)), Node("next", inputs=(0,), back=True)
    tensors = Tensor(0, 0, 4), Tensor(1, 0, 4)
    loop = documents.Graph(documents.SCHEMA, nodes, tensors)
    assert struct_faults("", loop) == []
    assert list(graph_document.graph(loop).predecessors) == [[], [0]]
    unmarked = msgspec.structs.replace(nodes[1], back=False)
    (fault,) = struct_faults("", msgspec.structs.replace(loop, nodes=(nodes[0], unmarked)))
    assert fault.startswith("nodes must not wait for each other in a cycle: ")
    assert "0 (merge)" in fault
    assert "1 (next)" in fault


def changed(*path_and_value):
    """SMALL with one value changed."""
    *path, last, value = path_and_value
    made = json.loads(json.dumps(SMALL))
    there = made
    for part in path:
        there = there[part]
    there[last] = value
    return json.dumps(made).encode()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("nodes", 1, "op", 2), r"nodes[1] (product).op refers to ops[2], which does not"),
        (("nodes", 1, "op", -1), r"nodes[1] (product).op refers to ops[-1], which does not"),
        (("nodes", 2, "inputs", [5]),
         "nodes[2] (split).inputs refers to tensors[5], which does not"),
        (("nodes", 3, "control", [4]),
         "nodes[3] (relu).control refers to nodes[4], which does not"),
        (("nodes", 0, "runs", -1),
         "nodes[0] (weights).runs must be finite and not negative, got -1.0"),
        (("nodes", 0, "control", [0]),
         "nodes must not wait for each other in a cycle: 0 (weights);"),
        (("tensors", 1, "node", 7), "tensors[1].node refers to nodes[7], which does not exist"),
        (("tensors", 1, "bytes", -8), "tensors[1].bytes must be between 0 and 2^63 - 1, got -8"),
        (("tensors", 1, "bytes", 1 << 63),
         f"tensors[1].bytes must be between 0 and 2^63 - 1, got {1 << 63}"),
        (("tensors", 3, "slot", -1), "tensors[3].slot must be between 0 and 2^31 - 1, got -1"),
        (("tensors", 3, "slot", 1 << 31),
         f"tensors[3].slot must be between 0 and 2^31 - 1, got {1 << 31}"),
        (("tensors", 3, "slot", 0),
         "tensors[3].slot must be unique for its node: slot 0 of nodes[2] is"),
        (("tensors", 4, "alias", 9), "tensors[4].alias refers to tensors[9], which does not exist"),
        (("tensors", 2, "alias", 4),
         "tensors[2].alias refers to tensors[4], which is an alias too"),
        (("tensors", 4, "alias", 0),
         "tensors[4].kind must be 'variable' as in tensors[0], which it is"),
        (("ops", 1, "key", "MatMul(f32[4])"),
         "ops must contain each key only once, got 'MatMul(f32[4])' 2 times"),
        (("ops", 0, "ways", 0, "threads", 0),
         "ops[0] (MatMul(f32[4])).ways[0].threads must be at least 1, got 0"),
        (("ops", 0, "ways", 0, "seconds", -0.5),
         "ops[0] (MatMul(f32[4])).ways[0].seconds must be finite and not negative, got"),
        (("ops", 0, "ways", [msgspec.structs.asdict(WAYS[1])] * 2),
         "ops[0] (MatMul(f32[4])).ways must contain each way only once, got 2 threads shared"),
        (("tensors", 0, "kind", "weight"), "tensors[0].kind: unknown value 'weight'"),
        (("nodes", 0, "colour", "red"), "nodes[0]: unknown field `colour`"),
    ],
)  # fmt: skip
def test_faults_name_the_field_and_its_value(change, fault):
    with pytest.raises(UsageError) as raised:
        decoded(changed(*change))
    assert fault in str(raised.value)


def test_all_faults_are_told_at_once():
    nodes = Node("a", op=1), Node("b", inputs=(3,), runs=np.inf)
    faults = struct_faults("", documents.Graph(documents.SCHEMA, nodes, (Tensor(5, 0, -1),)))
    assert len(faults) == 5


def test_the_graph_in_the_documentation():
    example = (SAMPLES.parents[2] / "scripts" / "docs" / "examples" / "graph.json").read_bytes()
    assert list(graph_document.graph(decoded(example)).predecessors) == [[], [0]]


def test_a_graph_without_nodes():
    empty = documents.Graph(documents.SCHEMA, (), ())
    assert struct_faults("", empty) == []
    assert graph_document.document(graph_document.graph(empty), ()) == empty
