"""Iterations read ahead into slots of memory that the ranks of a node share (COAL, DIO, PROV).

A slot holds the records of consecutive iterations, of all the node's ranks, as they are in the
file: adjacent data is read by one request. Behind them is a table of `ENTRY` rows: for each rank,
each iteration and each of its records, where value and key are.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dltune.base.errors import UsageError
from dltune.systems.lmdb.reader.database import Database
from dltune.systems.lmdb.reader.options import PAGE, Options
from dltune.systems.lmdb.reader.order import Order, Share
from dltune.systems.lmdb.reader.pieces import Layout, layout
from dltune.systems.lmdb.reader.tokens import Tokens

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SLOTS = 2  # one is read while the other is used
GROWTH = 4
ENTRY = 4  # numbers of 8 bytes: value's place and size, key's place and size


@dataclass(frozen=True)
class Filled:
    """A slot's content: `iterations`, their table at `table` (bytes, in memory)."""

    slot: int
    iterations: int
    table: int


@dataclass
class Filling:
    """Fills slots of `memory` (the address of options.memory bytes) for the `shares` of a node.

    Iterations from `next` up to `last` (None: without end).
    """

    database: Database
    order: Order
    shares: list[Share]
    options: Options
    tokens: Tokens | None
    memory: int
    next: int
    last: int | None

    def __post_init__(self) -> None:
        self._slot_bytes = self.options.memory // SLOTS // PAGE * PAGE
        together = sum(share.batch for share in self.shares)
        self._most = -(-self.options.parallel // together)

    def close(self) -> None:
        self.database.close()
        if self.tokens:
            self.tokens.close()

    def fill(self, slot: int) -> Filled | None:
        """Read the next iterations into a slot; None when all have been read.

        The first slot holds as few iterations as keep all requests in flight, so that training
        begins soon; each later slot at most `GROWTH` times as many as its predecessor. Raises
        UsageError when an iteration is larger than a slot, or the file cannot be read.
        """
        wanted = self._most if self.last is None else min(self._most, self.last - self.next)
        if wanted <= 0:
            return None
        base = slot * self._slot_bytes

        def read(fitted: _Fitted) -> UsageError | None:
            with self.tokens.held() if self.tokens else contextlib.nullcontext():
                return self.database.fetch(
                    fitted.layout.pieces, self.memory + base, self.options.parallel
                )

        fitted = self.database.settled(
            lambda: self._fitting(wanted),
            read,
            "let the writer commit less often, or give this reader less memory",
        )
        table = base + _aligned(fitted.layout.size)
        self._tell(fitted, table, base)
        self.next += fitted.iterations
        self._most = fitted.iterations * (GROWTH if fitted.iterations == wanted else 1)
        return Filled(slot, fitted.iterations, table)

    def _fitting(self, iterations: int) -> _Fitted:
        """Return as many of the next iterations as a slot holds."""
        import numpy as np

        index = self.database.index
        while True:
            numbers = np.concatenate(
                [share.numbers(self.next, iterations).reshape(-1) for share in self.shares]
            )
            positions = self.database.current(self.order.positions(numbers))
            found = layout(
                index.offsets[positions],
                index.sizes[positions],
                self.options.block,
                self.options.gap,
            )
            size = _aligned(found.size) + len(positions) * ENTRY * 8
            if size <= self._slot_bytes:
                keys, ends = index.keys_at(positions)
                size += len(keys)
                if size <= self._slot_bytes:
                    return _Fitted(iterations, found, index.sizes[positions], keys, ends)
            if iterations == 1:
                raise UsageError(
                    f"memory={self.options.memory} is too small: one iteration of this node takes "
                    f"{size} bytes, and half of the memory is {self._slot_bytes} bytes",
                    remedy=f"use at least memory={SLOTS * (size + PAGE)}",
                )
            iterations = max(1, min(iterations - 1, iterations * self._slot_bytes // size))

    def _tell(self, fitted: _Fitted, table: int, base: int) -> None:
        import ctypes

        import numpy as np

        rows = np.empty((len(fitted.sizes), ENTRY), np.uint64)
        behind = table + rows.nbytes
        rows[:, 0] = fitted.layout.places + base
        rows[:, 1] = fitted.sizes
        rows[:, 2] = np.concatenate(([0], fitted.ends[:-1])) + behind
        rows[:, 3] = np.diff(fitted.ends, prepend=0)
        ctypes.memmove(self.memory + table, rows.ctypes.data, rows.nbytes)
        ctypes.memmove(self.memory + behind, fitted.keys, len(fitted.keys))


@dataclass(frozen=True)
class _Fitted:
    """Iterations that fit a slot: their records' layout, sizes and keys."""

    iterations: int
    layout: Layout
    sizes: NDArray[np.uint32]
    keys: bytes
    ends: NDArray[np.int64]


def _aligned(size: int) -> int:
    return -(-size // 64) * 64
