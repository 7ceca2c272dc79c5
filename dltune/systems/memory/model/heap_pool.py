"""Memory taken once and handed out in blocks (SuperNeurons, section 3.2.1): a list of free pieces,
of which the first that is large enough is taken, and a table of used pieces.

Pieces that are given back become one with free neighbours, which the paper does not mention:
without that they only ever become smaller.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

BLOCK = 1 << 10


class PoolExhausted(Exception):
    """No free piece is large enough."""


@dataclass
class HeapPool:
    """Addresses and lengths are in blocks. `free`: (address, length) of the free pieces, in order,
    no two side by side. `taken`: by whose it is."""

    blocks: int
    free: list[tuple[int, int]] = field(default_factory=list)
    taken: dict[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, bytes: int) -> HeapPool:
        blocks = bytes // BLOCK
        return cls(blocks, [(0, blocks)] if blocks else [])

    def allocate(self, number: int, bytes: int) -> int:
        """Whose it is, is for the caller to number. The address in bytes. Raises PoolExhausted."""
        wanted = max(1, -(-bytes // BLOCK))
        for place, (address, length) in enumerate(self.free):
            if length >= wanted:
                rest = (address + wanted, length - wanted)
                self.free[place : place + 1] = [rest] if rest[1] else []
                self.taken[number] = (address, wanted)
                return address * BLOCK
        raise PoolExhausted(f"{wanted} blocks are wanted, the largest free piece has "
                            f"{self.largest // BLOCK}")  # fmt: skip

    def release(self, number: int) -> None:
        address, length = self.taken.pop(number)
        place = bisect.bisect(self.free, (address, length))
        if place < len(self.free) and address + length == self.free[place][0]:
            length += self.free.pop(place)[1]
        if place and sum(self.free[place - 1]) == address:
            place -= 1
            before = self.free.pop(place)
            address, length = before[0], before[1] + length
        self.free.insert(place, (address, length))

    @property
    def largest(self) -> int:
        """Bytes of the largest free piece."""
        return BLOCK * max((length for _, length in self.free), default=0)

    @property
    def top(self) -> int:
        """Bytes up to the end of the last used piece: a pool of that size would do for it."""
        return BLOCK * max((address + length for address, length in self.taken.values()), default=0)
