"""What a part of an operator reads, by the words of `documents.operators.Region`."""

from __future__ import annotations

from dltune.systems.parallelism.schemas.operators import Region


def read(region: Region, part: tuple[int, int], size: int) -> range:
    """Of a dimension of `size` positions, for a part from, to below in the dimension `of`."""
    low, high = part if region.of is not None else (0, 1)
    first = low * region.stride + region.start
    last = (high - 1) * region.stride + region.start + region.extent
    return range(max(0, first), min(size, last))
