"""The number of further repeated blocks of a step that have room in a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from dltune.base.errors import UsageError
from dltune.schemas.profile import Profile, Step
from dltune.simulate.step_graph import peak
from dltune.systems.memory.decide import (
    leaner,
    lives_of,
    plannable,
    within,
)
from dltune.systems.memory.model.deeper import Deeper
from dltune.systems.memory.model.measured import MeasuredStep, measured
from dltune.systems.memory.model.repeats import find
from dltune.systems.memory.model.schedule import Step as Run
from dltune.systems.memory.model.selection import least

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
    repeat = find(step, profile.ops)
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
