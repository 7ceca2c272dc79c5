"""Bytes that the ops of a step need at each moment, from the graph and a timeline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dltune.documents.profile import Step
from dltune.graph import profiled
from dltune.graph.liveness import lives
from dltune.report.timeline import Slice, levels


def live_bytes(step: Step, slices: Sequence[Slice]) -> list[tuple[int, int]]:
    """(nanoseconds, bytes from then on) over one execution, without what outlives it."""
    graph = profiled.graph(step)
    start, end = (np.full(len(graph), -1, np.int64) for _ in range(2))
    nodes = [piece.node for piece in slices]
    start[nodes] = [piece.start for piece in slices]
    end[nodes] = [piece.end for piece in slices]
    found = lives(graph, start, end)
    return levels(zip(found.begin.tolist(), found.end.tolist(), found.bytes.tolist(), strict=True))
