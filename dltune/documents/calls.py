"""A step that PyTorch runs call by call: the part of a profile that tells what was in memory."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from typing import Literal

import msgspec

from dltune.documents.faults import AMOUNT, at_least, each, index


class Call(msgspec.Struct, frozen=True, array_like=True):
    """Of an operator below autograd; what writes nothing and gives out nothing, or but views, is
    none.

    `phase`: autograd was to differentiate it, ran it itself, or neither. `reads`, `gives` (anew)
    and `writes` are storages. `scratch`: bytes that it took and gave back. `plain`: it has no
    arguments but what can be given to it again. `draws`: random numbers.
    """

    name: str
    phase: Literal["forward", "backward", "aside"]
    seconds: float
    scratch: int
    reads: tuple[int, ...]
    gives: tuple[int, ...]
    writes: tuple[int, ...]
    plain: bool
    draws: bool


class Storage(msgspec.Struct, frozen=True, array_like=True):
    """Memory of one or more tensors. `born`: the call that gave it out, -1: it was there before.
    `held`: the last call for which somebody had it beside autograd, `gone`: anybody."""

    bytes: int
    born: int
    held: int
    gone: int


class Layer(msgspec.Struct, frozen=True, array_like=True):
    """A module of `torch.nn` that computes by itself, in the forward pass.

    `path`: in the model, with "/" for a point. `kind`: the class as which it computes (empty: one
    of the script's). It makes the calls from `first` to below `last`, reads and gives storages of
    the shapes `inputs` and, of the first, `output`, numbers of `element` bytes. `weights`: each by
    a number of its own, with its bytes. `window`: its size along two dimensions, and its stride.
    `samples`: the dimension of the output that counts them.
    """

    path: str
    kind: str
    first: int
    last: int
    reads: tuple[int, ...]
    gives: tuple[int, ...]
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    element: int
    weights: tuple[tuple[int, int], ...]
    window: tuple[int, ...]
    groups: int
    samples: int


class Calls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From the end of one step of an optimizer to the end of the next.

    `saved`: storages of what autograd kept, with the number of calls made before; `read`: likewise
    of what it read again. `counted`: by the allocator itself; else `scratch` is not known.
    `layers`: in the order in which they end.
    """

    calls: tuple[Call, ...]
    storages: tuple[Storage, ...]
    saved: tuple[tuple[int, int], ...]
    read: tuple[tuple[int, int], ...]
    counted: bool
    layers: tuple[Layer, ...] = ()

    @property
    def forward(self) -> tuple[str, ...]:
        """The operators that autograd was to differentiate."""
        return tuple(call.name for call in self.calls if call.phase == "forward")

    @property
    def live(self) -> int:
        """Bytes that are there before the step and after it."""
        last = len(self.calls)
        return sum(one.bytes for one in self.storages if one.born < 0 and one.gone >= last)

    @property
    def levels(self) -> list[int]:
        """Bytes while each call ran."""
        change = [0] * (len(self.calls) + 1)
        for one in self.storages:
            change[max(one.born, 0)] += one.bytes
            if one.gone < len(self.calls):
                change[one.gone + 1] -= one.bytes
        held = itertools.accumulate(change)
        return [level + call.scratch for level, call in zip(held, self.calls, strict=False)]

    @property
    def signature(self) -> str:
        """Of these, and the memory that they give out."""
        told = [
            (call.name, [self.storages[storage].bytes for storage in call.gives])
            for call in self.calls
            if call.phase == "forward"
        ]
        return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:16]


def faults(found: Calls) -> Iterator[str]:
    """All that cannot be true, one sentence each, the field's path first."""
    a_storage = index(len(found.storages), "storages")
    for here, call in each("calls", found.calls, "name"):
        yield from AMOUNT.of(here, call, "seconds", "scratch")
        for name in ("reads", "gives", "writes"):
            yield from a_storage.faults(f"{here}.{name}", *getattr(call, name))
    for here, storage in each("storages", found.storages):
        yield from AMOUNT.of(here, storage, "bytes")
        yield from at_least(-1).of(here, storage, "born")
        yield from at_least(storage.born, "its birth").of(here, storage, "held", "gone")
    for name in ("saved", "read"):
        for storage, call in getattr(found, name):
            yield from a_storage.faults(name, storage)
            yield from at_least(0).faults(name, call)
    for here, layer in each("layers", found.layers, "path"):
        yield from at_least(0).of(here, layer, "first")
        yield from at_least(layer.first).of(here, layer, "last")
        yield from at_least(1).of(here, layer, "element", "groups")
        for name in ("reads", "gives"):
            yield from a_storage.faults(f"{here}.{name}", *getattr(layer, name))
        for name in ("output", "window"):
            yield from at_least(0).faults(f"{here}.{name}", *getattr(layer, name))
        yield from at_least(0).of(here, layer, "samples")
        if len(layer.window) not in (0, 3):
            yield f"{here}.window must be two sizes and a stride, got {layer.window}"
        if layer.last > len(found.calls):
            yield f"{here}.last must be at most {len(found.calls)}, got {layer.last}"
        if len(layer.inputs) != len(layer.reads):
            yield f"{here}.inputs must be as many as its reads"
    given = [(storage, at) for at, call in enumerate(found.calls) for storage in call.gives]
    if any(
        storage < len(found.storages) and found.storages[storage].born != at
        for storage, at in given
    ):
        yield "calls must give out each storage where it was born"
