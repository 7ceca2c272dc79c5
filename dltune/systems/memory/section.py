"""The plan's section on memory: the order of a step's nodes, in which some run again to save
memory. Sizes are in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from dltune.base.documents import AMOUNT, FILLED, SHARE, Bound, at_least, each, index

# all but the order: the figures of a plan
FIGURES = (
    *("signature", "budget", "live", "before", "peak", "seconds", "added", "batch", "waited"),
    "hooks",
)

_NAME = Bound("a printable name", lambda name: bool(name) and name.isprintable())


class Offloaded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tensor that leaves memory for a file during the step.

    `place`, `slot`: position of its node in `nodes`, and output slot.
    `bytes`: size.
    `out`: position in `order` after which it is copied to the file.
    `freed`: position in `order` before which its memory is released.
    `back`: position in `order` before which memory is allocated for it again.
    `use`: position in `order` at which it is read again.
    """

    place: int
    slot: Annotated[int, AMOUNT]
    bytes: Annotated[int, AMOUNT]
    out: Annotated[int, AMOUNT]
    freed: int
    back: int
    use: int


class GivenUp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Results of PyTorch calls that are released and computed again.

    `calls`: positions in the section's `calls`.
    `reads`: for each storage, the number of reads in the backward pass before the first
      recomputation and after each.
    """

    calls: tuple[int, ...]
    reads: tuple[tuple[Annotated[int, AMOUNT], ...], ...]

    def relation_faults(self) -> Iterator[str]:
        if len(self.reads) < 2 or len({len(row) for row in self.reads}) > 1:
            yield "reads must be at least two rows of the same length"


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Order of a step's nodes.

    `signature`: graph.
    `nodes`: names of its nodes. For PyTorch, calls of one step including recomputations.
    `order`: positions in `nodes` in execution order, each at least once.
    `budget`: requested limit of the framework's allocator; null without one.
    `live`: bytes that do not belong to results of the step.
    `before`, `peak`: highest number of bytes within a step in addition to `live`, without and with
      the plan.
    `seconds`: time of all ops of a step.
    `added`: time of the recomputed ops.
    `course_before`, `course`: highest number of bytes in equal parts of the step's op time, without
      and with the plan.
    `batch`: examples per step if the plan changes them; otherwise null.
    `offloaded`: tensors that leave memory.
    `folder`: folder of the file for these tensors; null for none.
    `waited`: seconds in which the step waits for copies.
    `hooks`: for PyTorch, seconds of a step that dltune's own work takes.
    `calls`: for PyTorch, operators that autograd records, in call order.
    `given_up`: results of `calls` that are released.
    `compiled`: for a compiled PyTorch step, the compiler's `activation_memory_budget`; otherwise
      null.
    """

    signature: str
    nodes: tuple[Annotated[str, _NAME], ...]
    order: tuple[int, ...]
    budget: Annotated[int | None, at_least(1)]
    live: Annotated[int, AMOUNT]
    before: Annotated[int, AMOUNT]
    peak: Annotated[int, AMOUNT]
    seconds: Annotated[float, AMOUNT]
    added: Annotated[float, AMOUNT]
    course_before: Annotated[tuple[Annotated[int, AMOUNT], ...], FILLED]
    course: Annotated[tuple[Annotated[int, AMOUNT], ...], FILLED]
    batch: Annotated[int | None, at_least(1)] = None
    offloaded: tuple[Offloaded, ...] = ()
    folder: str | None = None
    waited: Annotated[float, AMOUNT] = 0.0
    hooks: Annotated[float, AMOUNT] = 0.0
    calls: tuple[str, ...] = ()
    given_up: tuple[GivenUp, ...] = ()
    compiled: Annotated[float | None, SHARE] = None

    @property
    def longer(self) -> float:
        """Return the seconds by which a step is longer under the plan."""
        return self.added + self.waited + self.hooks

    @property
    def again(self) -> int:
        """Return the number of results that are computed again."""
        return len(self.order) - len(self.nodes)

    def relation_faults(self) -> Iterator[str]:
        if self.compiled is not None and (self.nodes or self.calls):
            yield "compiled must be null when memory.nodes or memory.calls are present"
        if len(set(self.nodes)) < len(self.nodes):
            yield "nodes must not repeat a name"
        if set(self.order) != set(range(len(self.nodes))):
            yield f"order must contain each index from 0 to {len(self.nodes) - 1} at least once"
        if self.offloaded and not self.folder:
            yield "folder must name a folder when memory.offloaded is not empty"
        yield from self._call_faults()
        a_place = index(len(self.nodes), "memory.nodes")
        for at, one in each("offloaded", self.offloaded):
            yield from a_place.of(at, one, "place")
            if not one.out < one.freed <= one.back <= one.use < len(self.order):
                yield (
                    f"{at} must satisfy out < freed <= back <= use < {len(self.order)} (the length "
                    f"of memory.order), got {one.out}, {one.freed}, {one.back}, {one.use}"
                )

    def _call_faults(self) -> Iterator[str]:
        if self.calls and self.offloaded:
            yield "offloaded must be empty when memory.calls are present"
        a_call = index(len(self.calls), "memory.calls")
        had: set[int] = set()
        for at, one in each("given_up", self.given_up):
            yield from a_call.faults(f"{at}.calls", *one.calls)
            if not one.calls or list(one.calls) != sorted(set(one.calls)) or had & {*one.calls}:
                yield (
                    f"{at}.calls must be in increasing order and not in another entry, got "
                    f"{list(one.calls)}"
                )
            had.update(one.calls)
