"""Bytes that the ops of a step need at each moment, from the graph and a timeline.

An estimate: an op's outputs live from its start to the end of the last op that reads them. Ops that
hand on their input's memory (`VIEWS`) need none of their own and keep the input alive. What kernels
hold while they run, and outputs that take an input's place, are not known from a graph.
"""

from __future__ import annotations

from collections.abc import Sequence

from dltune.analysis.flops import VIEWS
from dltune.documents.profile import Step
from dltune.report.timeline import Slice, levels


def live_bytes(step: Step, slices: Sequence[Slice]) -> list[tuple[int, int]]:
    """(nanoseconds, bytes from then on) over one execution, without what outlives it."""
    until = {piece.node: piece.end for piece in slices}
    source = _sources(step)
    last: dict[int, int] = {}
    for node, end in until.items():
        for before in step.nodes[node].inputs:
            owner = source[before]
            last[owner] = max(last.get(owner, 0), end)
    return levels(
        (piece.start, max(piece.end, last.get(piece.node, 0)), step.nodes[piece.node].output_bytes)
        for piece in slices
        if source[piece.node] == piece.node and not _is_view(step, piece.node)
    )


def _is_view(step: Step, node: int) -> bool:
    return step.nodes[node].type.lstrip("_") in VIEWS


def _sources(step: Step) -> list[int]:
    """By node, the one whose memory its output is; of views in a circle, one of them."""
    found: dict[int, int] = {}
    for start in range(len(step.nodes)):
        path: dict[int, None] = {}
        node = start
        while node not in found and node not in path:
            path[node] = None
            if not _is_view(step, node) or not step.nodes[node].inputs:
                break
            node = step.nodes[node].inputs[0]
        found.update(dict.fromkeys(path, found.get(node, node)))
    return [found[node] for node in range(len(step.nodes))]
