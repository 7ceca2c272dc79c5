"""Conversion of step graphs to graph documents (`dltune.graph/1`), and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec
import numpy as np

from dltune.schemas import graph as documents
from dltune.schemas import profile
from dltune.schemas.graph import Graph, Node, Op, Tensor, TensorKind, Way
from dltune.simulate import step_graph
from dltune.simulate.step_graph import CSR, Kind, StepGraph, Tensors


def graph(found: Graph) -> StepGraph:
    """`found` is without fault, as `schemas.graph.load` makes sure."""
    nodes, tensors = found.nodes, found.tensors
    return StepGraph(
        names=[node.name for node in nodes],
        op=np.array([-1 if node.op is None else node.op for node in nodes], np.int32),
        runs=np.array([node.runs for node in nodes], np.float64),
        tensors=Tensors.of(
            [(tensor.node, tensor.slot) for tensor in tensors],
            [tensor.bytes for tensor in tensors],
            [own if one.alias is None else one.alias for own, one in enumerate(tensors)],
            [Kind[tensor.kind.upper()] for tensor in tensors],
        ),
        reads=CSR.of(node.inputs for node in nodes),
        control=CSR.of(node.control for node in nodes),
        back=np.array([node.back for node in nodes], np.bool_),
    )


def document(made: StepGraph, ops: Sequence[Op]) -> Graph:
    """`ops`: what the nodes' `op` are positions in. The graph tells neither types nor devices."""
    found = made.tensors
    places = zip(found.producer.tolist(), found.slot.tolist(), found.bytes.tolist(), strict=True)
    kinds = [cast(TensorKind, Kind(kind).name.lower()) for kind in found.kind]
    whose = zip(kinds, found.alias.tolist(), strict=True)
    return Graph(
        schema=documents.SCHEMA,
        nodes=tuple(
            Node(name, "", None if op < 0 else op, tuple(inputs), tuple(control), runs, back)
            for name, op, inputs, control, runs, back in zip(
                made.names,
                made.op.tolist(),
                made.reads,
                made.control,
                made.runs.tolist(),
                made.back.tolist(),
                strict=True,
            )
        ),
        tensors=tuple(
            Tensor(*place, "", kind, None if alias == own else alias)
            for own, (place, (kind, alias)) in enumerate(zip(places, whose, strict=True))
        ),
        ops=tuple(ops),
    )


def of_step(step: profile.Step, ops: Sequence[profile.Op]) -> Graph:
    """A step of a profile with these `ops`; a way's time is the least that was measured."""
    ways = [tuple(Way(t.threads, t.placement, t.min) for t in op.times) for op in ops]
    made = document(step_graph.graph(step), [Op(o.key, w) for o, w in zip(ops, ways, strict=True)])
    replace = msgspec.structs.replace

    def dtype(tensor: Tensor) -> str:
        told = step.nodes[tensor.node].outputs
        return told[tensor.slot].dtype if tensor.slot < len(told) else ""

    return replace(
        made,
        nodes=tuple(
            replace(node, type=of.type, device=step.device)
            for node, of in zip(made.nodes, step.nodes, strict=True)
        ),
        tensors=tuple(replace(tensor, dtype=dtype(tensor)) for tensor in made.tensors),
    )
