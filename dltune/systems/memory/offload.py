"""Tensors that leave memory for a file while a step runs, in addition to recomputation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dltune.schemas.machine import Tier
from dltune.schemas.profile import Step
from dltune.simulate.step_graph import Amounts, Kind
from dltune.systems.memory.model.accesses import Accesses, accesses
from dltune.systems.memory.model.measured import MeasuredStep
from dltune.systems.memory.model.offloading import hidden
from dltune.systems.memory.model.overlapped import overlapped
from dltune.systems.memory.model.selection import Selection
from dltune.systems.memory.model.swaps import Swap, held
from dltune.systems.memory.model.tensor_cache import CacheTooSmall
from dltune.systems.memory.model.tiers import Tiers
from dltune.systems.memory.section import Offloaded

SMALLEST = 64 << 10  # bytes; a smaller tensor is not worth a copy
# types of tensors that hold their values elsewhere
_HANDLES = ("resource", "variant", "string")


@dataclass(frozen=True, eq=False)
class Offloading:
    """A selection, and the tensors that leave memory in addition. `level`: bytes by step that are
    held then. `waited`: seconds in which the step waits for copies."""

    selection: Selection
    swaps: Sequence[Swap]
    level: Amounts
    waited: float
    offloaded: Sequence[Offloaded]

    @property
    def peak(self) -> int:
        return int(self.level.max(initial=0))

    @property
    def seconds(self) -> float:
        """That the step takes longer."""
        return self.selection.seconds + self.waited


class Offloader:
    """For a step and the file's tier."""

    def __init__(self, found: MeasuredStep, step: Step, tier: Tier) -> None:
        self.found, self.tier = found, tier
        self.leaving = set(_leaving(found, step))
        self.place = {node: number for number, node in enumerate(found.order)}

    def offload(self, selection: Selection, room: int) -> Offloading:
        """So that no more than `room` bytes are held. Raises CacheTooSmall."""
        uses, alone = self._uses(selection)
        steps = selection.steps
        seconds = [self.found.seconds[step.node] for step in steps]
        swaps = hidden(uses, seconds, room, self.tier, alone)
        swaps.sort(key=lambda one: one.out)
        made = overlapped(uses, seconds, swaps, Tiers(room, (self.tier,)))
        tensors = self.found.graph.tensors
        offloaded = []
        for swap in swaps:
            last = max(at for at in uses.at[swap.block] if at <= swap.out)
            tensor = alone[swap.block][last]
            place, slot = self.place[int(tensors.producer[tensor])], int(tensors.slot[tensor])
            offloaded.append(Offloaded(place, slot, int(tensors.bytes[tensor]), *swap[1:5]))
        return Offloading(selection, swaps, held(uses, swaps), made.stall, offloaded)

    def least(self, selection: Selection) -> int:
        """The fewest bytes with which it can be done, by halving."""
        uses, alone = self._uses(selection)
        low, high = uses.largest - 1, int(uses.levels.max(initial=0))
        seconds = [0.0] * len(selection.steps)
        while high - low > 1:
            room = (low + high) // 2
            try:
                high = int(held(uses, hidden(uses, seconds, room, self.tier, alone)).max())
            except CacheTooSmall:
                low = room
        return high

    def _uses(self, selection: Selection) -> tuple[Accesses, dict[int, dict[int, int]]]:
        """Return the accesses and, by block, after which steps it can leave, and which tensor then
        does."""
        found, steps = self.found, selection.steps
        uses = accesses(found.graph, steps, found.written, found.forwarded)
        alone = {
            block: {at: tensor for at, tensor in row.items() if tensor in self.leaving}
            for block, row in uses.alone(found.graph, steps).items()
        }
        return uses, alone


def _leaving(found: MeasuredStep, step: Step) -> Iterator[int]:
    """Yield the tensors that can leave."""
    tensors = found.graph.tensors
    held = (tensors.kind == Kind.RESULT)[tensors.alias] & (tensors.bytes >= SMALLEST)
    for tensor in np.flatnonzero(held).tolist():
        outputs, slot = step.nodes[tensors.producer[tensor]].outputs, tensors.slot[tensor]
        if slot < len(outputs) and outputs[slot].dtype not in _HANDLES:
            yield tensor
