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
from typing import Literal

import msgspec

from dltune.base.documents import AMOUNT, at_least, between, each, index


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
    """Memory of one or more tensors.

    `bytes`: size.
    `born`: call that created it; -1 if it existed before the step.
    `held`: last call at which anything except autograd used it.
    `gone`: last call at which anything used it; the number of calls if it outlives the step.
    """

    bytes: int
    born: int
    held: int
    gone: int


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
    """The calls between the end of one optimizer step and the end of the next.

    `calls`: calls in order.
    `storages`: storages that they use.
    `saved`, `read`: storages that autograd saved and read again, each with the number of calls made
      before.
    `counted`: true if the allocator itself counted; otherwise `scratch` is unknown.
    `layers`: modules in the order in which they end.
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


def call_faults(found: Calls) -> Iterator[str]:
    """All that cannot be true, one sentence each, the field's path first."""
    a_storage = index(len(found.storages), "storages")
    for here, call in each("calls", found.calls, "name"):
        yield from AMOUNT.of(here, call, "seconds", "scratch")
        for name in ("reads", "gives", "writes"):
            yield from a_storage.faults(f"{here}.{name}", *getattr(call, name))
    for here, storage in each("storages", found.storages):
        yield from AMOUNT.of(here, storage, "bytes")
        yield from at_least(-1).of(here, storage, "born")
        yield from at_least(storage.born, "the value of born").of(here, storage, "held", "gone")
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
            yield f"{here}.window must be empty, or two sizes and a stride, got {layer.window}"
        if layer.last > len(found.calls):
            yield f"{here}.last must be at most {len(found.calls)}, got {layer.last}"
        if len(layer.inputs) != len(layer.reads):
            yield (
                f"{here}.inputs must have length {len(layer.reads)} (one for each of reads), got "
                f"{len(layer.inputs)}"
            )
    given = [(storage, at) for at, call in enumerate(found.calls) for storage in call.gives]
    if any(
        storage < len(found.storages) and found.storages[storage].born != at
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

    budget: float
    kept: int
    forward: int
    backward: int
    again: int
    work: float


class Graph(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A compiled graph with a backward pass.

    `runs`: executions per step.
    `work`: work of both passes: multiplications and additions of matrix products and convolutions,
      plus output elements of all other operations.
    `rungs`: memory budgets that give different graphs, the job's own budget first.
    """

    runs: int
    work: float
    rungs: tuple[Rung, ...]


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
    live: int
    forward: int
    between: int
    backward: int
    passes: int
    failed: str = ""

    @property
    def peak(self) -> int:
        return max(self.forward, self.backward)

    @property
    def signature(self) -> str:
        """Of the graphs."""
        return hashlib.sha256(msgspec.json.encode(self.graphs)).hexdigest()[:16]


def compiled_faults(found: Compiled) -> Iterator[str]:
    """All that cannot be true, one sentence each, the field's path first."""
    yield from AMOUNT.of("", found, "live", "forward", "between", "backward", "passes")
    for here, graph in each("graphs", found.graphs):
        yield from at_least(1).of(here, graph, "runs")
        yield from AMOUNT.of(here, graph, "work")
        yield from at_least(1).faults(f"the length of {here}.rungs", len(graph.rungs))
        for at, rung in each(f"{here}.rungs", graph.rungs):
            yield from between(0.0, 1.0).of(at, rung, "budget")
            yield from AMOUNT.of(at, rung, "kept", "forward", "backward", "again", "work")
        budgets = [rung.budget for rung in graph.rungs]
        if budgets != sorted(set(budgets), reverse=True):
            yield f"{here}.rungs must be in order of decreasing budget, got {budgets}"
