"""Combination of shapes, element by element."""

from __future__ import annotations


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """NumPy's rule; None for shapes that do not go together."""
    rank = max(map(len, shapes), default=0)
    found = []
    for sizes in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        longest = {size for size in sizes if size != 1} or {1}
        if len(longest) > 1:
            return None
        found.append(longest.pop())
    return tuple(found)
