"""The plan's section on memory: in which order a step's nodes run, some of them again."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dltune.documents.faults import AMOUNT, Bound, at_least


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`signature`: of the graph. `nodes`: its nodes' names. `order`: places in `nodes` as they run,
    each once at least; what reads a result reads that of the last time.

    `budget`: bytes that TensorFlow's allocator may hold, where that was asked. `live`: those that it holds between steps,
    and beside them within one `peak`, or `before` without the plan. `seconds`: of all ops of a
    step, `added`: of what runs again.
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

    @property
    def again(self) -> int:
        """How many results are computed again."""
        return len(self.order) - len(self.nodes)


def faults(section: Memory) -> Iterator[str]:
    """All that cannot be done, one sentence each, the field's path first."""
    if section.budget is not None:
        yield from at_least(1).of("memory", section, "budget")
    yield from AMOUNT.of("memory", section, "live", "before", "peak", "seconds", "added")
    if bad := next((name for name in section.nodes if not _NAME.holds(name)), None):
        yield f"memory.nodes must be names that can be printed, got {bad!r}"
    if len(set(section.nodes)) < len(section.nodes):
        yield "memory.nodes must be different, got one twice"
    if set(section.order) != set(range(len(section.nodes))):
        yield f"memory.order must have each place from 0 to {len(section.nodes) - 1} once at least"


_NAME = Bound("a name that can be printed", lambda name: bool(name) and name.isprintable())
