"""The calls of a PyTorch step: the part of a profile from which memory is planned.

Sizes are in bytes. Calls and storages are referred to by their position.

A PyTorch step that the script compiles: the part of a profile that shows what smaller memory
budgets cost.

Sizes are in bytes of the allocator.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from dltune.base.documents import AMOUNT, FILLED, LABEL, SHARE, at_least, at_most, each, index


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A call of an operator below autograd. Calls that write nothing and return at most views are
    left out.

    `name`: operator.
    `phase`: `forward`: autograd records the call; `backward`: autograd runs it; `aside`: neither.
    `seconds`: duration.
    `scratch`: bytes allocated and released within the call.
    `reads`, `gives`, `writes`: storages that the call reads, creates and changes.
    `plain`: true if the call can be repeated with the same arguments.
    `draws`: true if the call draws random numbers.
    """

    name: Annotated[str, LABEL]
    phase: Literal["forward", "backward", "aside"]
    seconds: Annotated[float, AMOUNT]
    scratch: Annotated[int, AMOUNT]
    reads: tuple[int, ...]
    gives: tuple[int, ...]
    writes: tuple[int, ...]
    plain: bool
    draws: bool


class Storage(msgspec.Struct, frozen=True, array_like=True):
    """Memory of one or more tensors.

    `bytes`: size.
    `born`: call that created it; -1 if it existed before the step.
    `held`: last call at which anything except autograd used it.
    `gone`: last call at which anything used it; the number of calls if it outlives the step.
    """

    bytes: Annotated[int, AMOUNT]
    born: Annotated[int, at_least(-1)]
    held: int
    gone: int

    def relation_faults(self) -> Iterator[str]:
        yield from at_least(self.born, "the value of born").of("", self, "held", "gone")


class Layer(msgspec.Struct, frozen=True, array_like=True):
    """A `torch.nn` module that computes by itself, in the forward pass.

    `path`: path in the model, with `/` as separator.
    `kind`: class of `torch.nn`; empty for a class of the script.
    `first`, `last`: the module makes the calls from `first` up to, but not including, `last`.
    `reads`, `gives`: storages that the module reads and creates.
    `inputs`: shapes of the inputs.
    `output`: shape of the first output.
    `element`: bytes per number.
    `weights`: weights, each as a number that identifies it and its size.
    `window`: window size in two dimensions and stride; empty without a window.
    `groups`: groups of a convolution.
    `samples`: dimension of the output that counts samples.
    """

    path: Annotated[str, LABEL]
    kind: str
    first: Annotated[int, at_least(0)]
    last: int
    reads: tuple[int, ...]
    gives: tuple[int, ...]
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[Annotated[int, at_least(0)], ...]
    element: Annotated[int, at_least(1)]
    weights: tuple[tuple[int, int], ...]
    window: tuple[Annotated[int, at_least(0)], ...]
    groups: Annotated[int, at_least(1)]
    samples: Annotated[int, at_least(0)]

    def relation_faults(self) -> Iterator[str]:
        yield from at_least(self.first).of("", self, "last")
        if len(self.window) not in (0, 3):
            yield f"window must be empty, or two sizes and a stride, got {self.window}"
        if len(self.inputs) != len(self.reads):
            yield (
                f"inputs must have length {len(self.reads)} (one for each of reads), got "
                f"{len(self.inputs)}"
            )


class Calls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The calls between the end of one optimizer step and the end of the next.

    `calls`: calls in order.
    `storages`: storages that they use.
    `saved`, `read`: storages that autograd saved and read again, each with the number of calls made
      before.
    `counted`: true if the allocator itself counted; otherwise `scratch` is unknown.
    `layers`: modules in the order in which they end.
    `crossing`: seconds by which a call is longer that goes through Python; 0 if unknown.
    """

    calls: tuple[Call, ...]
    storages: tuple[Storage, ...]
    saved: tuple[tuple[int, int], ...]
    read: tuple[tuple[int, int], ...]
    counted: bool
    layers: tuple[Layer, ...] = ()
    crossing: Annotated[float, AMOUNT] = 0.0

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

    def relation_faults(self) -> Iterator[str]:
        a_storage = index(len(self.storages), "storages")
        for here, call in each("calls", self.calls):
            for name in ("reads", "gives", "writes"):
                yield from a_storage.faults(f"{here}.{name}", *getattr(call, name))
        for name in ("saved", "read"):
            for storage, call in getattr(self, name):
                yield from a_storage.faults(name, storage)
                yield from at_least(0).faults(name, call)
        for here, layer in each("layers", self.layers):
            for name in ("reads", "gives"):
                yield from a_storage.faults(f"{here}.{name}", *getattr(layer, name))
            yield from at_most(len(self.calls)).of(here, layer, "last")
        given = [(storage, at) for at, call in enumerate(self.calls) for storage in call.gives]
        if any(
            storage < len(self.storages) and self.storages[storage].born != at
            for storage, at in given
        ):
            yield "calls must list each storage in gives of the call that its born names"


class Rung(msgspec.Struct, frozen=True, array_like=True):
    """The compiled graph under one memory budget of the compiler.

    `budget`: `activation_memory_budget`, from 0 to 1.
    `kept`: bytes that the forward pass keeps for the backward pass.
    `forward`, `backward`: highest number of bytes in each pass, computed from the graph.
    `again`: number of operations that the backward pass repeats.
    `work`: work of the repeated operations, in the unit of the graph's `work`.
    """

    budget: Annotated[float, SHARE]
    kept: Annotated[int, AMOUNT]
    forward: Annotated[int, AMOUNT]
    backward: Annotated[int, AMOUNT]
    again: Annotated[int, AMOUNT]
    work: Annotated[float, AMOUNT]


class Graph(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A compiled graph with a backward pass.

    `runs`: executions per step.
    `work`: work of both passes: multiplications and additions of matrix products and convolutions,
      plus output elements of all other operations.
    `rungs`: memory budgets that give different graphs, the job's own budget first.
    """

    runs: Annotated[int, at_least(1)]
    work: Annotated[float, AMOUNT]
    rungs: Annotated[tuple[Rung, ...], FILLED]

    def relation_faults(self) -> Iterator[str]:
        budgets = [rung.budget for rung in self.rungs]
        if budgets != sorted(set(budgets), reverse=True):
            yield f"rungs must be in order of decreasing budget, got {budgets}"


class Compiled(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The step between the end of one optimizer step and the end of the next.

    `graphs`: compiled graphs with a backward pass.
    `live`: bytes at the end of the step.
    `forward`: highest number of bytes before the first backward pass.
    `between`: bytes at the start of the first backward pass.
    `backward`: highest number of bytes after that.
    `passes`: number of backward passes.
    `failed`: reason why `graphs` is incomplete; empty if it is complete.
    """

    graphs: tuple[Graph, ...]
    live: Annotated[int, AMOUNT]
    forward: Annotated[int, AMOUNT]
    between: Annotated[int, AMOUNT]
    backward: Annotated[int, AMOUNT]
    passes: Annotated[int, AMOUNT]
    failed: str = ""

    @property
    def peak(self) -> int:
        return max(self.forward, self.backward)

    @property
    def signature(self) -> str:
        """Of the graphs."""
        return hashlib.sha256(msgspec.json.encode(self.graphs)).hexdigest()[:16]
