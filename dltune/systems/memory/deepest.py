"""The number of further repeated blocks of a step that have room in a budget."""

from __future__ import annotations

import functools
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from dltune.base.errors import UsageError
from dltune.schemas.profile import Node, Profile, Step
from dltune.simulate.step_graph import peak
from dltune.systems.memory.decide import (
    leaner,
    lives_of,
    plannable,
    within,
)
from dltune.systems.memory.model.profiled_step import (
    READ,
    REFERENCE,
    TOUCHES,
    MeasuredStep,
    measured,
)
from dltune.systems.memory.model.repeated_blocks import Repeat, find_repeats
from dltune.systems.memory.model.schedule import Step as Run
from dltune.systems.memory.model.selection import least


@dataclass(frozen=True)
class _Pass:
    """Forward or backward: `rising` where blocks run by rising number. Of the two blocks at the cut
    the later begins at `begins`, `seconds` after the other."""

    rising: bool
    seconds: float
    begins: float


@dataclass(frozen=True, eq=False)
class Deeper:
    """`step` as profiled, and what repeats in it.

    `of` returns a step with further blocks between those that repeat. A copy is between two blocks.
    From the block before and the block behind it reads the values that each block reads from its
    neighbours; it also reads the values that all blocks read. Nodes that gather from all blocks
    gather from copies, too.
    """

    step: Step
    repeat: Repeat

    def of(self, copies: int) -> Step:
        """The step with so many blocks more. The first nodes are the profiled ones, in their order;
        each copy has its nodes behind them. Nodes begin as late as they would with the copies'
        before them."""
        nodes = [
            *(self._moved(node, copies) for node in range(len(self.step.nodes))),
            *(
                self._copied(row, self.repeat.cut + copy, copies)
                for copy in range(1, copies + 1)
                for row in range(len(self.repeat.rows))
            ),
        ]
        return msgspec.structs.replace(self.step, nodes=tuple(nodes))

    @functools.cached_property
    def parameters(self) -> int:
        """Return the bytes of a block's variables, of the optimizer's values for them, and of their
        handles: a variable is as large as the tensor that is read from it, or goes into it."""
        nodes = self.step.nodes
        found = {row[self.repeat.cut]: 0 for row in self.repeat.rows}
        for reader in nodes:
            if not reader.inputs or nodes[reader.inputs[0]].type in REFERENCE:
                continue
            if reader.type.endswith(READ):
                size = sum(one.bytes for one in reader.outputs)
            elif reader.type.startswith(TOUCHES):
                size = max(
                    (_given(nodes, reader, at) for at in range(1, len(reader.inputs))), default=0
                )
            else:
                continue
            for one in reader.inputs:
                if one in found and nodes[one].type == nodes[reader.inputs[0]].type:
                    found[one] = max(found[one], size)
        held = [
            sum(out.bytes for out in nodes[one].outputs)
            for one, size in found.items()
            if size or nodes[one].type in REFERENCE
        ]
        return sum(held) + sum(found.values())

    @functools.cached_property
    def _place(self) -> dict[int, tuple[int, int]]:
        """By node of a block its row, and the block's number."""
        return {
            node: (row, block)
            for row, nodes in enumerate(self.repeat.rows)
            for block, node in nodes.items()
        }

    @functools.cached_property
    def _waits(self) -> list[set[tuple[int, int]]]:
        """By row which other rows' nodes all its nodes wait for by control edges, and how many
        blocks ahead."""
        found = []
        for row in self.repeat.rows:
            ahead: dict[int, set[int]] = {}
            for block, node in row.items():
                for one in self.step.nodes[node].control:
                    if one in self._place:
                        other, there = self._place[one]
                        ahead.setdefault(other, set()).add(there - block)
            found.append({(other, min(one)) for other, one in ahead.items() if len(one) == 1})
        return found

    def _at(self, row: int, block: int, copies: int) -> int:
        """The node there, by the block's new number."""
        cut, rows = self.repeat.cut, self.repeat.rows
        if cut < block <= cut + copies:
            return len(self.step.nodes) + (block - cut - 1) * len(rows) + row
        return rows[row][block if block <= cut else block - copies]

    def _moved(self, at: int, copies: int) -> Node:
        node = self.step.nodes[at]
        begins = self._begins(at, copies)
        moved = {"start": begins, "end": None if begins is None else begins + node.seconds}
        if at not in self._place:
            return msgspec.structs.replace(node, **moved, **self._gathered(node, copies))
        row, block = self._place[at]
        apart = {(one.row, one.ahead) for one in self.repeat.like[row][1]}
        new = block + copies * (block > self.repeat.cut)

        def now(one: int, regular: Collection[tuple[int | None, int]]) -> int:
            other, there = self._place.get(one, (None, 0))
            if other is None or (other, there - block) not in regular:
                return one
            return self._at(other, new + there - block, copies)

        return msgspec.structs.replace(
            node,
            inputs=tuple(now(one, apart) for one in node.inputs),
            control=tuple(now(one, self._waits[row]) for one in node.control),
            **moved,
        )

    def _gathered(self, node: Node, copies: int) -> dict[str, Any]:
        """Return the node's inputs where it reads the same of several blocks."""
        slots = node.slots or (0,) * len(node.inputs)
        read: dict[tuple[int, int], set[int]] = {}
        for one, slot in zip(node.inputs, slots, strict=True):
            if one in self._place:
                row, block = self._place[one]
                read.setdefault((row, slot), set()).add(block)
        more = [
            (self._at(row, self.repeat.cut + copy, copies), slot)
            for (row, slot), blocks in read.items()
            if len(blocks) > 1
            for copy in range(1, copies + 1)
        ]
        return {
            "inputs": (*node.inputs, *(one for one, _ in more)),
            "slots": (*slots, *(slot for _, slot in more)),
        }

    def _copied(self, row: int, block: int, copies: int) -> Node:
        like, reads = self.repeat.like[row]
        nodes = self.step.nodes
        node = nodes[self.repeat.rows[row][like]]
        control = [one for one in node.control if one not in self._place]
        for other, there in (self._place[one] for one in node.control if one in self._place):
            if (other, there - like) in self._waits[row]:
                control.append(self._at(other, block + there - like, copies))
        begins = self._copy_begins(row, block, copies)
        took = statistics.median(nodes[one].seconds for one in self.repeat.rows[row].values())
        return msgspec.structs.replace(
            node,
            name=f"{node.name}/dltune_deeper_{block - self.repeat.cut}",
            inputs=tuple(
                one if read.row is None else self._at(read.row, block + read.ahead, copies)
                for one, read in zip(node.inputs, reads, strict=True)
            ),
            control=tuple(control),
            start=begins,
            end=None if begins is None else begins + took,
            live=None,
        )

    @functools.cached_property
    def _passes(self) -> list[_Pass]:
        """Return the passes, recognised by nodes that read of the block that ran before theirs."""
        found = []
        for rising in (True, False):
            pairs = [
                (first, second) if rising else (second, first)
                for row, (_, reads) in enumerate(self.repeat.like)
                if (pair := self._pair(row))
                for first, second in [pair]
                if (first < second) == rising
                and any(
                    read.row is not None and read.ahead == (-1 if rising else 1) for read in reads
                )
            ]
            if pairs:
                seconds = statistics.median(later - earlier for earlier, later in pairs)
                begins = min(later for _, later in pairs)
                found.append(_Pass(rising, seconds, begins))
        return found

    def _pair(self, row: int) -> tuple[float, float] | None:
        """When the row's nodes before and behind the cut begin; None where nobody knows."""
        nodes, cut = self.repeat.rows[row], self.repeat.cut
        first, second = (self.step.nodes[nodes[block]].start for block in (cut, cut + 1))
        return None if first is None or second is None else (first, second)

    def _later(self, moment: float, copies: int, *, passes: float = 0.0) -> float:
        """Seconds that copies take before `moment`, of those passes of which the copies would begin
        so many blocks before it."""
        return sum(
            copies * one.seconds
            for one in self._passes
            if moment >= one.begins + passes * one.seconds
        )

    def _begins(self, at: int, copies: int) -> float | None:
        start = self.step.nodes[at].start
        row, block = self._place.get(at, (None, 0))
        if start is None:
            return None
        if row is None or (pair := self._pair(row)) is None:
            return start + self._later(start, copies)
        first, second = pair
        behind = block > self.repeat.cut if first <= second else block <= self.repeat.cut
        later = self._later((first + second) / 2, copies, passes=1.0)
        return start + later + copies * abs(second - first) * behind

    def _copy_begins(self, row: int, block: int, copies: int) -> float | None:
        if (pair := self._pair(row)) is None:
            return None
        first, second = pair
        later = self._later((first + second) / 2, copies, passes=1.0)
        done = block - self.repeat.cut
        if first > second:
            first, second, done = second, first, copies + 1 - done
        return first + later + done * (second - first)


def _given(nodes: Sequence[Node], reader: Node, at: int) -> int:
    """Return the bytes of the tensor that it reads there."""
    slot = reader.slots[at] if reader.slots else 0
    outputs = nodes[reader.inputs[at]].outputs
    return outputs[slot].bytes if slot < len(outputs) else 0


MOST_NODES = 15_000  # of a deeper step; a plan for more takes longer than people wait


@dataclass(frozen=True)
class Depth:
    """With so many blocks in all: `live` bytes outside a step and `peak` within, op time in
    `seconds`, and what runs again `added`."""

    blocks: int
    live: int
    peak: int
    seconds: float
    added: float


@dataclass(frozen=True)
class Deepest:
    """`blocks`: alike, in the job as it is, one of which is `like` this. `unplanned`: the deepest
    that fits without a plan, None where that as it is does not. `tried`: no deeper one was."""

    blocks: int
    like: str
    unplanned: Depth | None
    planned: Depth
    tried: int


def deepest(profile: Profile, budget: int) -> Deepest:
    """`budget`: bytes of TensorFlow's allocator in all. Raises UsageError when no block repeats,
    or the budget is too small for the job as it is."""
    step, given, live = plannable(profile)
    repeat = find_repeats(step, profile.ops)
    if repeat is None:
        raise UsageError(
            "the step has no identical blocks in sequence, so no block can be added",
            remedy="omit --deepest: it requires a network of identical layers, such as a "
            "transformer",
        )
    deeper = Deeper(step, repeat)
    at_most = max(0, (MOST_NODES - len(step.nodes)) // len(repeat.rows))

    def depth(copies: int, found: MeasuredStep, most: int, added: float) -> Depth:
        held = live + copies * deeper.parameters
        return Depth(repeat.blocks + copies, held, most, sum(found.seconds), added)

    def unplanned(copies: int) -> tuple[MeasuredStep, int]:
        found = measured(deeper.of(copies))
        return found, peak(lives_of(found, [Run(node) for node in found.order]))[0]

    def fits(copies: int) -> bool:
        return live + copies * deeper.parameters + unplanned(copies)[1] <= budget

    before = _most(fits, -1, at_most)
    copies = _most_planned(deeper, leaner(given), budget - live, max(before, 0), at_most)
    while True:
        found = measured(deeper.of(copies))
        orders = (leaner(found), found)
        try:
            ordered, chosen = within(orders, budget, live + copies * deeper.parameters)
            break
        except UsageError:
            # kernels of this order find less to write over than was thought
            if copies == max(before, 0):
                raise
            copies -= 1
    return Deepest(
        repeat.blocks,
        _name(step, [row[repeat.cut] for row in repeat.rows]),
        None if before < 0 else depth(before, *unplanned(before), 0.0),
        depth(copies, ordered, chosen.peak, chosen.seconds),
        repeat.blocks + at_most,
    )


def _most(fits: Callable[[int], bool], low: int, at_most: int) -> int:
    """Return the most that fit. `low`: a number known to fit, or one less than the fewest asked
    for."""
    high = low + 1
    while high <= at_most and fits(high):
        low, high = high, 2 * high + 1
    high = min(high, at_most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _most_planned(deeper: Deeper, given: MeasuredStep, room: int, low: int, at_most: int) -> int:
    """Return the most that fit. `low`: a number known to fit. A deeper step needs no less, so each
    trial shows how many can fit, or how many do: the parameters of the others are known."""
    each = deeper.parameters

    def needed(copies: int) -> int:
        step = leaner(measured(deeper.of(copies))) if copies else given
        left = room - copies * each
        return least(step.graph, step.order, step.seconds, step.again, left, step.written)

    def bound(bytes: int) -> int:
        """So many have room at most where as much is needed within a step."""
        return (room - bytes) // each if each else at_most + 1

    high = bound(least(given.graph, given.order, given.seconds, given.again, 0, given.written)) + 1
    copies = min(high - 1, at_most)
    while low < copies:
        tried = needed(copies)
        if copies * each + tried <= room:
            low = copies
        elif each:
            low, high = max(low, min(bound(tried), copies - 1)), copies
        else:
            high = copies
        copies = (low + high) // 2
    return low


def _name(step: Step, nodes: list[int]) -> str:
    """Return the name that most of a block's nodes share: their scope below the part that all have
    in common."""
    scopes = Counter(
        scope for node in nodes if "/" in (scope := step.nodes[node].name.rpartition("/")[0])
    )
    return scopes.most_common(1)[0][0] if scopes else step.nodes[nodes[0]].name
