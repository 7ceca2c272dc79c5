"""Rows of whole numbers of different lengths, such as the edges of a graph, in two arrays."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int32]
Amounts = NDArray[np.int64]
Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
Kinds = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class CSR:
    """Row i is `items[offsets[i]:offsets[i + 1]]` (compressed sparse rows, without values).

    `offsets`: int32, one more than there are rows. `items`: int32.
    """

    offsets: Integers
    items: Integers

    @classmethod
    def of(cls, rows: Iterable[Iterable[int]]) -> CSR:
        found = [tuple(row) for row in rows]
        offsets = np.zeros(len(found) + 1, np.int32)
        np.cumsum([len(row) for row in found], out=offsets[1:])
        items = np.fromiter((item for row in found for item in row), np.int32, offsets[-1])
        return cls(offsets, items)

    @classmethod
    def grouped(cls, row: Integers, item: Integers, rows: int) -> CSR:
        """From pairs; a row's items keep the order that they have here."""
        offsets = np.zeros(rows + 1, np.int32)
        np.cumsum(np.bincount(row, minlength=rows), out=offsets[1:])
        return cls(offsets, item[np.argsort(row, kind="stable")].astype(np.int32))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Integers:
        return self.items[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.lists)

    @functools.cached_property
    def lists(self) -> list[list[int]]:
        """The rows for loops in Python, which are slow on arrays."""
        items, offsets = self.items.tolist(), self.offsets.tolist()
        return [items[begin:end] for begin, end in itertools.pairwise(offsets)]

    @functools.cached_property
    def row(self) -> Integers:
        """Of each item, the row that it stands in."""
        return np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.offsets))

    def distinct(self) -> CSR:
        """Each item of a row once, where it stands first."""
        pairs = self.row.astype(np.int64) << 32 | self.items
        first = np.sort(np.unique(pairs, return_index=True)[1])
        return CSR.grouped(self.row[first], self.items[first], len(self))

    def transposed(self, rows: int) -> CSR:
        """Row j holds, in rising order, the rows that hold j."""
        return CSR.grouped(self.items, self.row, rows)
