"""The plan's section on memory: the order of a step's nodes, in which some run again to save
memory. Sizes are in bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec

from dltune.base.documents import AMOUNT, SHARE, Bound, at_least, each, index

# all but the order: the figures of a plan
FIGURES = ("signature", "budget", "live", "before", "peak", "seconds", "added", "batch", "waited")


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
    slot: int
    bytes: int
    out: int
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
    reads: tuple[tuple[int, ...], ...]


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
    `calls`: for PyTorch, operators that autograd records, in call order.
    `given_up`: results of `calls` that are released.
    `compiled`: for a compiled PyTorch step, the compiler's `activation_memory_budget`; otherwise
      null.
    """

    signature: str
    nodes: tuple[str, ...]
    order: tuple[int, ...]
    budget: int | None
    live: int
    before: int
    peak: int
    seconds: float
    added: float
    course_before: tuple[int, ...]
    course: tuple[int, ...]
    batch: int | None = None
    offloaded: tuple[Offloaded, ...] = ()
    folder: str | None = None
    waited: float = 0.0
    calls: tuple[str, ...] = ()
    given_up: tuple[GivenUp, ...] = ()
    compiled: float | None = None

    @property
    def again(self) -> int:
        """Return the number of results that are computed again."""
        return len(self.order) - len(self.nodes)


def faults(section: Memory) -> Iterator[str]:
    """All that cannot be done, one sentence each, the field's path first."""
    yield from at_least(1).of("memory", section, "budget", "batch")
    yield from AMOUNT.of("memory", section, "live", "before", "peak", "seconds", "added", "waited")
    yield from SHARE.of("memory", section, "compiled")
    if section.compiled is not None and (section.nodes or section.calls):
        yield "memory.compiled must be null when memory.nodes or memory.calls are present"
    yield from AMOUNT.faults("memory.course_before", *section.course_before)
    yield from AMOUNT.faults("memory.course", *section.course)
    for field in ("course_before", "course"):
        if not getattr(section, field):
            yield f"memory.{field} must not be empty"
    if bad := next((name for name in section.nodes if not _NAME.holds(name)), None):
        yield f"memory.nodes must be printable names, got {bad!r}"
    if len(set(section.nodes)) < len(section.nodes):
        yield "memory.nodes must not repeat a name"
    if set(section.order) != set(range(len(section.nodes))):
        yield (
            f"memory.order must contain each index from 0 to {len(section.nodes) - 1} at least once"
        )
    if section.offloaded and not section.folder:
        yield "memory.folder must name a folder when memory.offloaded is not empty"
    yield from _call_faults(section)
    a_place = index(len(section.nodes), "memory.nodes")
    for at, one in each("memory.offloaded", section.offloaded):
        yield from a_place.of(at, one, "place")
        yield from AMOUNT.of(at, one, "slot", "bytes", "out")
        if not one.out < one.freed <= one.back <= one.use < len(section.order):
            yield (
                f"{at} must satisfy out < freed <= back <= use < {len(section.order)} (the length "
                f"of memory.order), got {one.out}, {one.freed}, {one.back}, {one.use}"
            )


def _call_faults(section: Memory) -> Iterator[str]:
    if section.calls and section.offloaded:
        yield "memory.offloaded must be empty when memory.calls are present"
    a_call = index(len(section.calls), "memory.calls")
    had: set[int] = set()
    for at, one in each("memory.given_up", section.given_up):
        yield from a_call.faults(f"{at}.calls", *one.calls)
        if not one.calls or list(one.calls) != sorted(set(one.calls)) or had & {*one.calls}:
            yield (
                f"{at}.calls must be in increasing order and not in another entry, got "
                f"{list(one.calls)}"
            )
        had.update(one.calls)
        yield from AMOUNT.faults(f"{at}.reads", *itertools.chain(*one.reads))
        if len(one.reads) < 2 or len({len(row) for row in one.reads}) > 1:
            yield f"{at}.reads must be at least two rows of the same length"


_NAME = Bound("a printable name", lambda name: bool(name) and name.isprintable())
