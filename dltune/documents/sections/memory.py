"""The plan's section on memory: in which order a step's nodes run, some of them again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec

from dltune.documents.faults import AMOUNT, SHARE, Bound, at_least, each, index

# all but the order, what there is to tell of a plan in numbers
FIGURES = ("signature", "budget", "live", "before", "peak", "seconds", "added", "batch", "waited")


class Offloaded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`bytes` of what the node at `place` in `nodes` gives out at `slot`. They are copied to the
    file once the node at `out` in `order` has run, and have left before that at `freed` begins;
    memory is taken for them anew before that at `back`, and they are read at `use`."""

    place: int
    slot: int
    bytes: int
    out: int
    freed: int
    back: int
    use: int


class GivenUp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `calls` (places in `Memory.calls`) give out is given up once it has been read, and they
    are made again where it is read later. `reads`: how often each of the storages that they give
    out is read in the backward pass, before the calls are made again and after each time."""

    calls: tuple[int, ...]
    reads: tuple[tuple[int, ...], ...]


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`signature`: of the graph. `nodes`: its nodes' names. `order`: places in `nodes` as they run,
    each once at least; what reads a result reads that of the last time.

    `budget`: bytes that TensorFlow's allocator may hold, where that was asked. `live`: those that
    are none of a step's results, and beside them within one `peak`, or `before` without the plan.
    `seconds`: of all ops of a step, `added`: of what runs again. `course_before` and `course`: the
    most bytes within a step in each of so many equal parts of its op time. `batch`: examples of a
    step where they are not as many as in the profile. `offloaded`: what leaves memory for a file in
    `folder` meanwhile, and `waited`, the seconds in which the step waits for those copies.

    Of a step of PyTorch's, `calls`: the operators that autograd differentiates, as they are called;
    of one that the script compiles, `compiled`: the part of what the compiler would keep for the
    backward pass that it keeps.
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
        """How many results are computed again."""
        return len(self.order) - len(self.nodes)


def faults(section: Memory) -> Iterator[str]:
    """All that cannot be done, one sentence each, the field's path first."""
    yield from at_least(1).of("memory", section, "budget", "batch")
    yield from AMOUNT.of("memory", section, "live", "before", "peak", "seconds", "added", "waited")
    yield from SHARE.of("memory", section, "compiled")
    if section.compiled is not None and (section.nodes or section.calls):
        yield "memory.compiled must be alone: there are memory.nodes or memory.calls"
    yield from AMOUNT.faults("memory.course_before", *section.course_before)
    yield from AMOUNT.faults("memory.course", *section.course)
    for field in ("course_before", "course"):
        if not getattr(section, field):
            yield f"memory.{field} must have a part at least, got none"
    if bad := next((name for name in section.nodes if not _NAME.holds(name)), None):
        yield f"memory.nodes must be names that can be printed, got {bad!r}"
    if len(set(section.nodes)) < len(section.nodes):
        yield "memory.nodes must be different, got one twice"
    if set(section.order) != set(range(len(section.nodes))):
        yield f"memory.order must have each place from 0 to {len(section.nodes) - 1} once at least"
    if section.offloaded and not section.folder:
        yield "memory.folder must name a folder where something is offloaded, got none"
    yield from _call_faults(section)
    a_place = index(len(section.nodes), "memory.nodes")
    for at, one in each("memory.offloaded", section.offloaded):
        yield from a_place.of(at, one, "place")
        yield from AMOUNT.of(at, one, "slot", "bytes", "out")
        if not one.out < one.freed <= one.back <= one.use < len(section.order):
            yield (
                f"{at} must leave and come back one after the other within the "
                f"{len(section.order)} of memory.order, got {one.out}, {one.freed}, {one.back}, "
                f"{one.use}"
            )


def _call_faults(section: Memory) -> Iterator[str]:
    if section.calls and section.offloaded:
        yield "memory.offloaded must be empty where there are memory.calls"
    a_call = index(len(section.calls), "memory.calls")
    had: set[int] = set()
    for at, one in each("memory.given_up", section.given_up):
        yield from a_call.faults(f"{at}.calls", *one.calls)
        if not one.calls or list(one.calls) != sorted(set(one.calls)) or had & {*one.calls}:
            yield f"{at}.calls must be in order, and of no other, got {list(one.calls)}"
        had.update(one.calls)
        yield from AMOUNT.faults(f"{at}.reads", *itertools.chain(*one.reads))
        if len(one.reads) < 2 or len({len(row) for row in one.reads}) > 1:
            yield f"{at}.reads must be two rows at least, of the same length"


_NAME = Bound("a name that can be printed", lambda name: bool(name) and name.isprintable())
