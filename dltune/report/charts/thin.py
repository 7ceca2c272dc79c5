"""A series of thousands of points as what can be seen of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

COLUMNS = 500


def thinned(
    points: Sequence[tuple[float, float]], end: float, columns: int = COLUMNS
) -> tuple[list[tuple[float, float, float]], list[tuple[float, float]]]:
    """Of a step function that holds each value until the next point, up to `end`: in each column of
    equal width its (x, lowest, highest), and (x, mean over time)."""
    if not points or end <= points[0][0]:
        return [], []
    times, levels = np.array(points).T
    times = np.append(times, end)
    area = np.append(0.0, np.cumsum(levels * np.diff(times)))
    edges = np.linspace(times[0], end, columns + 1)
    middles = ((edges[:-1] + edges[1:]) / 2).tolist()
    mean = np.diff(np.interp(edges, times, area)) / np.diff(edges)
    # the points that hold at the edges: a column sees both, and all between
    holding = np.searchsorted(times[:-1], edges, "right") - 1
    seen = [levels[a : b + 1] for a, b in itertools.pairwise(holding)]
    band = [(x, float(s.min()), float(s.max())) for x, s in zip(middles, seen, strict=True)]
    return band, list(zip(middles, mean.tolist(), strict=True))
