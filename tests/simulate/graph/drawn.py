"""Graphs made by code, and any graphs at all."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from dltune.simulate.step_graph import CSR, Kind, StepGraph, Tensors


def graph(inputs, control, back=(), outputs=None, alias=None, kind=None) -> StepGraph:
    """`inputs` of each node: tensors; `outputs`: the (producer, slot) of each tensor, by default
    one of each node."""
    count = len(inputs)
    places = [(node, 0) for node in range(count)] if outputs is None else outputs
    return StepGraph(
        names=[f"n{node}" for node in range(count)],
        op=np.arange(count, dtype=np.int32),
        runs=np.ones(count),
        tensors=Tensors.of(places, [1 << k for k in range(len(places))], alias, kind),
        reads=CSR.of(inputs),
        control=CSR.of(control),
        back=np.array([node in back for node in range(count)], np.bool_),
    )


@st.composite
def graphs(draw, acyclic: bool = False) -> StepGraph:
    """Up to ten nodes with up to three outputs, some never read; edges may go anywhere."""
    count = draw(st.integers(1, 10))
    places = [(n, slot) for n in range(count) for slot in range(draw(st.integers(0, 3)))]
    of = {node: [k for k, (p, _) in enumerate(places) if p < node] for node in range(count)}
    inputs, control = [], []
    for node in range(count):
        tensors = of[node] if acyclic else range(len(places))
        nodes = range(node) if acyclic else range(count)
        inputs.append(draw(st.lists(st.sampled_from(tensors), max_size=4)) if tensors else [])
        control.append(draw(st.lists(st.sampled_from(nodes), max_size=2)) if nodes else [])
    back = draw(st.sets(st.integers(0, count - 1), max_size=2))
    # each is its own, or that of an earlier one which is its own
    alias: list[int] = []
    for k in range(len(places)):
        roots = [other for other in range(k) if alias[other] == other]
        alias.append(draw(st.sampled_from([k, k, *roots])))
    kind = [draw(st.sampled_from([Kind.RESULT, Kind.RESULT, *Kind])) for _ in places]
    return graph(inputs, control, back, places, alias, kind)
