"""The tensor cache (SuperNeurons, section 3.3.2, Algorithm 2): a tier of memory keeps the tensors
that were used last, and those that a layer works on are locked."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class CacheTooSmall(Exception):
    """Locked tensors leave no room. `missing`: bytes."""

    def __init__(self, missing: int) -> None:
        super().__init__(f"{missing} bytes are missing in addition to the locked tensors")
        self.missing = missing


class Checked(NamedTuple):
    """`hit`: it was there. `evicted`: what left for the other tier, the least recently used
    first."""

    hit: bool
    evicted: tuple[int, ...] = ()


@dataclass
class TensorCache:
    """`capacity` in bytes. `held`: by tensor its bytes, the least recently used first. Tensors are
    known by numbers of the caller's."""

    capacity: int
    held: OrderedDict[int, int] = field(default_factory=OrderedDict)
    locked: set[int] = field(default_factory=set)
    used: int = 0

    def check(self, tensor: int, bytes: int) -> Checked:
        """Has it at the front from here on, and locked. Raises CacheTooSmall, having evicted
        nothing."""
        if tensor in self.held:
            self.held.move_to_end(tensor)
            self.locked.add(tensor)
            return Checked(True)
        evicted = self._out(bytes)
        self.held[tensor] = bytes
        self.used += bytes
        self.locked.add(tensor)
        return Checked(False, evicted)

    def lock(self, tensors: Iterable[int]) -> None:
        """Those of them that are there stay until `unlock`: a layer works on them."""
        self.locked.update(tensor for tensor in tensors if tensor in self.held)

    def unlock(self) -> None:
        """The layer has run."""
        self.locked.clear()

    def release(self, tensor: int) -> None:
        """Nobody needs it any more: it goes nowhere. One that is not there is no fault."""
        self.used -= self.held.pop(tensor, 0)
        self.locked.discard(tensor)

    def _out(self, bytes: int) -> tuple[int, ...]:
        missing = self.used + bytes - self.capacity
        evicted: list[int] = []
        for tensor, size in self.held.items():
            if missing <= 0:
                break
            if tensor not in self.locked:
                evicted.append(tensor)
                missing -= size
        if missing > 0:
            raise CacheTooSmall(missing)
        for tensor in evicted:
            self.release(tensor)
        return tuple(evicted)
