"""A series of thousands of points as what can be seen of it."""

from __future__ import annotations

from collections.abc import Sequence

COLUMNS = 500


def thinned(
    points: Sequence[tuple[float, float]], end: float, columns: int = COLUMNS
) -> tuple[list[tuple[float, float, float]], list[tuple[float, float]]]:
    """Of a step function that holds each value until the next point, up to `end`: in each column of
    equal width its (x, lowest, highest), and (x, mean over time)."""
    if not points or end <= points[0][0]:
        return [], []
    start = points[0][0]
    width = (end - start) / columns
    band: list[tuple[float, float, float]] = []
    mean: list[tuple[float, float]] = []
    index = 0
    for column in range(columns):
        left = start + column * width
        right = left + width
        low = high = points[index][1]
        area = 0.0
        at = left
        while True:
            level = points[index][1]
            low, high = min(low, level), max(high, level)
            following = points[index + 1][0] if index + 1 < len(points) else end
            until = min(following, right)
            area += level * max(0.0, until - at)
            at = max(at, until)
            if following > right or index + 1 >= len(points):
                break
            index += 1
        band.append((left + width / 2, low, high))
        mean.append((left + width / 2, area / width))
    return band, mean
