"""From a profile and a budget to the order in which a step's nodes run, some of them again."""

from __future__ import annotations

import contextlib
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dltune.base.errors import UsageError
from dltune.native.solver import SolverFailed
from dltune.schemas.profile import Node, Profile, Step
from dltune.simulate import step_graph
from dltune.simulate.step_graph import Amounts, Lives, peak
from dltune.systems.memory.model.optimum import least
from dltune.systems.memory.model.profiled_step import Batched, MeasuredStep, batched, measured
from dltune.systems.memory.model.schedule import Step as Run
from dltune.systems.memory.model.schedule import lean, levels, lives
from dltune.systems.memory.model.selection import BudgetTooSmall, Selection, exact, select
from dltune.systems.memory.offload import CacheTooSmall, Offloader, Offloading
from dltune.systems.memory.pytorch import EagerStep, eager, hooks, recomputed
from dltune.systems.memory.request import SMALLEST, Request
from dltune.systems.memory.section import GivenUp, Memory
from dltune.systems.memory.show import mib

# nodes that run several times in a step, or not at all
_CONTROL_FLOW = ("Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond")
# what waits for others, by the beginning of its type
_FROM_ELSEWHERE = ("Recv", "HostRecv", "Collective", "Horovod")
LARGEST = 5  # tensors that are named
# of the budgets between the least and the budget that asks for nothing
HALVINGS = 8
PARTS = 200  # of a step, for each of which the most bytes are reported
MOST_EXAMPLES = 2**24
# how often a selection is tried for inputs that kernels write over, and which part of a budget can
# be left
TRIES = 3
NEAR = 0.01
_PAGE = 4096  # bytes
MIXES = 3  # of computing again and offloading, in addition to offloading alone


@dataclass(frozen=True)
class Peak:
    """The point where a step without a plan needs the most memory: `bytes` on top of those held
    before it, at the node `at`; the largest tensors' bytes there, by the node that gives them
    out."""

    bytes: int
    at: str
    largest: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Planned:
    """`bound`: seconds of computing again that no selection in this order takes less than; None
    where that is not known. `failure`: why it is not, or is lower than it could be, a sentence."""

    section: Memory
    peak: Peak
    bound: float | None
    failure: str | None


def decide(profile: Profile, request: Request = SMALLEST) -> Planned:
    """Return the plan of a step whose calls or nodes are known. Raises UsageError when the budget
    cannot be met, or the profile lacks the necessary data."""
    request.require_support(profile)
    called = _called(profile)
    step, given, live = (None, called.step, called.live) if called else plannable(profile)
    budget, batch = request.budget, None
    if request.largest_batch and budget is not None and step:
        steps = batched(profile, step, given)
        given, batch = _largest(steps, budget - live)
        batch = None if batch == steps.batch else batch
    lower = given if called else leaner(given)
    total = sum(given.seconds)

    def taken(one: Selection) -> float:
        """Seconds of what runs again, and of dltune's own work."""
        return one.seconds + (hooks(called, one.steps) if called else 0.0)

    moved: Offloading | None = None
    if budget is not None and request.tier and step:
        found, moved = lower, _offloaded(Offloader(lower, step, request.tier), budget, live)
        chosen = moved.selection
    elif budget is not None:
        found, chosen = within((lower, given), budget, live)
    elif request.slowdown is not None:
        found, chosen = lower, _slower(lower, request.slowdown * total, taken)
    else:
        found, chosen = _least((lower, given))
    bound = failure = None
    if moved is None and (request.bounded or request.solve is not None):
        room = chosen.peak if budget is None else budget - live
        chosen, bound, failure = _bounded(found, chosen, room, request.solve)
    before = [Run(node) for node in given.order]
    most = _peak(given, before)
    offloaded = tuple(moved.offloaded) if moved else ()
    section = Memory(
        signature=step.signature if step else called.calls.signature if called else "",
        nodes=tuple(found.graph.names[node] for node in found.order),
        order=_places(found, chosen),
        budget=budget,
        live=live,
        before=most.bytes,
        peak=moved.peak if moved else chosen.peak,
        seconds=total,
        added=chosen.seconds,
        course_before=course(given, before),
        course=course(found, chosen.steps, moved.level if moved else None),
        batch=batch,
        offloaded=offloaded,
        folder=str(request.offload.resolve()) if request.offload and offloaded else None,
        waited=moved.waited if moved else 0.0,
        hooks=taken(chosen) - chosen.seconds,
        calls=called.calls.forward if called else (),
        given_up=given_up(called, chosen) if called else (),
    )
    return Planned(section, most, bound, failure)


def _called(profile: Profile) -> EagerStep | None:
    """Return the step of an eager job; None for another job. Raises UsageError where the profile
    lacks the step."""
    if not profile.framework.capabilities.is_eager:
        return None
    if profile.calls is None or not profile.calls.forward:
        raise UsageError(
            "the profile does not contain the memory that a step holds: an older dltune wrote it, "
            "the script has hooks on saved tensors around its steps, or the job ended before its "
            "fifth step",
            remedy="profile the job again with this version of dltune, for at least five steps",
        )
    return eager(profile.calls)


def given_up(called: EagerStep, chosen: Selection) -> tuple[GivenUp, ...]:
    forward = (at for at, call in enumerate(called.calls.calls) if call.phase == "forward")
    place = {at: number for number, at in enumerate(forward)}
    return tuple(
        GivenUp(tuple(place[call] for call in one.group.calls), tuple(map(tuple, one.reads)))
        for one in recomputed(called, chosen.steps)
    )


def plannable(profile: Profile) -> tuple[Step, MeasuredStep, int]:
    """Return the step of the most op time, and the bytes that are held outside it. Raises
    UsageError when it cannot be planned, or the profile lacks the necessary data."""
    if profile.memory is None:
        raise UsageError(
            "the profile does not contain the job's memory use",
            remedy="profile the job again with this version of dltune",
        )
    if not profile.steps:
        raise UsageError("the profile contains no steps", remedy="profile the job for longer")
    step = max(profile.steps, key=lambda one: one.share)
    _require_known(step)
    _require_straight(step)
    given = measured(step)
    return step, given, max(profile.memory.live, _beside(step, given))


def leaner(found: MeasuredStep) -> MeasuredStep:
    order = lean(found.graph, found.order, found.written, found.in_turn)
    return replace(found, order=order)


def course(
    found: MeasuredStep, steps: Sequence[Run], level: Amounts | None = None
) -> tuple[int, ...]:
    """The most bytes in each of PARTS equal parts of the op time of these steps. `level`: by step,
    where not all stays that is needed later."""
    bytes = levels(lives_of(found, steps), len(steps))[0] if level is None else level
    ends = np.cumsum([found.seconds[step.node] for step in steps])
    part = np.minimum(ends / max(ends[-1], 1e-12) * PARTS, PARTS - 1).astype(np.int64)
    most = np.zeros(PARTS, np.int64)
    # an op is seen in all parts that it takes
    for first, last, held in zip(np.append(0, part[:-1]), part, bytes, strict=True):
        most[first : last + 1] = np.maximum(most[first : last + 1], held)
    return tuple(most.tolist())


def _require_known(step: Step) -> None:
    if all(node.start is None or node.end is None for node in step.nodes):
        raise UsageError(
            "the profile does not contain the times at which the step's ops ran",
            remedy="profile the job again",
        )
    if not any(node.stateful for node in step.nodes):
        raise UsageError(
            "the profile does not contain which ops keep state",
            remedy="profile the job again with this version of dltune",
        )


def _require_straight(step: Step) -> None:
    for node in step.nodes:
        if node.type.lstrip("_").removeprefix("Ref") in _CONTROL_FLOW or node.repeats > 1:
            raise UsageError(
                f"{node.name} is part of a loop or a condition in the step's graph, and the order "
                "of ops in these cannot be fixed",
                remedy="plan memory only for steps without the tf.while_loop and tf.cond of "
                "TensorFlow 1",
            )
        if node.type.lstrip("_").startswith(_FROM_ELSEWHERE):
            raise UsageError(
                f"{node.name} receives a tensor from another device or process; in a fixed order "
                "of ops, both sides could wait for each other",
                remedy="plan memory only for steps that run on one device",
            )


_Chosen = tuple[MeasuredStep, Selection]


def within(orders: Sequence[MeasuredStep], budget: int, live: int) -> _Chosen:
    """In the first of these orders in which the budget can be met."""
    for found in orders:
        try:
            return found, _selected(found, budget - live)
        except BudgetTooSmall:
            continue
    found, chosen = _least(orders)
    if live + chosen.peak > budget:
        raise _too_few(budget, live, chosen.peak)
    return found, chosen


def _offloaded(offloader: Offloader, budget: int, live: int) -> Offloading:
    """Return the offloading that takes the least time, of several that compute more or less
    again."""
    room, found = budget - live, offloader.found
    chosen = [_counted(found, _select(found, sys.maxsize))]
    for part in range(MIXES):
        with contextlib.suppress(BudgetTooSmall):
            asked = room + (chosen[0].peak - room) * part // MIXES
            chosen.append(_counted(found, _select(found, asked)))
    moved = _that_fit(offloader, chosen, room)
    if not moved:
        chosen.append(_smallest(found))
        moved = _that_fit(offloader, chosen, room)
    if not moved:
        raise _too_few(budget, live, min(map(offloader.least, chosen)))
    return min(moved, key=lambda one: (one.seconds, one.peak))


def _that_fit(offloader: Offloader, chosen: Sequence[Selection], room: int) -> list[Offloading]:
    found = []
    for one in chosen:
        with contextlib.suppress(CacheTooSmall):
            found.append(offloader.offload(one, room))
    return found


def _too_few(budget: int, live: int, least: int) -> UsageError:
    return UsageError(
        f"budget too small: {mib(live)} of persistent memory plus at least {mib(least)} for the "
        f"step exceed {mib(budget)}",
        remedy=f"pass --budget {-(-(live + least) >> 20)}MiB or more, or --smallest",
    )


def _least(orders: Sequence[MeasuredStep]) -> _Chosen:
    found = [(one, _smallest(one)) for one in orders]
    return min(found, key=lambda one: (one[1].peak, one[1].seconds))


def _smallest(found: MeasuredStep) -> Selection:
    try:
        return _counted(found, _select(found, 0))
    except BudgetTooSmall as error:
        return _counted(found, _select(found, error.least))


def _slower(found: MeasuredStep, seconds: float, taken: Callable[[Selection], float]) -> Selection:
    """Return the selection of the lowest peak that has `taken` no more than these, by halving the
    budgets between."""
    low = _smallest(found)
    if taken(low) <= seconds:
        return low
    best = _selected(found, sys.maxsize)
    least = low.peak
    for _ in range(HALVINGS):
        room = (least + best.peak) // 2
        try:
            tried = _selected(found, room)
        except BudgetTooSmall:
            least = room
            continue
        if taken(tried) <= seconds:
            best = tried
        else:
            least = tried.peak
    return best


def _selected(found: MeasuredStep, room: int) -> Selection:
    """Kernels find more or less to write over than in the order that was measured: as much is asked
    for as makes what they need come near to `room`. Raises BudgetTooSmall."""
    best: Selection | None = None
    low = high = None  # budgets asked for: too little or with room left, and too much
    asked, tries, less = room, 0, _PAGE
    while best is None or tries < TRIES:
        tries += 1
        left = 0
        try:
            tried = _counted(found, _select(found, asked))
        except BudgetTooSmall:
            if high is None or high - asked < _PAGE:
                raise
            low = asked
        else:
            left = room - tried.peak
            if left < 0:
                high = asked
                left, less = min(left, -less), 2 * less
            else:
                low = asked
                if best is None or tried.seconds < best.seconds:
                    best = tried
                if not tried.seconds or left < NEAR * room:
                    break
        asked = asked + left if low is None or high is None else (low + high) // 2
        if best is not None and high is not None and high - asked < _PAGE:
            break
    return best


def _select(found: MeasuredStep, budget: int) -> Selection:
    return select(found.graph, found.order, found.seconds, found.again, budget, found.written)


def _counted(found: MeasuredStep, chosen: Selection) -> Selection:
    """With the peak of kernels that write over an input where they can in this order, not where
    they did in that which was measured."""
    steps = found.run(chosen.steps)
    had: set[int] = set()
    seconds = 0.0
    for step in steps:
        seconds += found.seconds[step.node] if step.node in had else 0.0
        had.add(step.node)
    return replace(chosen, steps=steps, peak=peak(lives_of(found, steps))[0], seconds=seconds)


def lives_of(found: MeasuredStep, steps: Sequence[Run]) -> Lives:
    return lives(found.graph, steps, found.written, found.forwarded)


def _bounded(
    found: MeasuredStep, chosen: Selection, room: int, limit: float | None
) -> tuple[Selection, float | None, str | None]:
    """With a `limit` a better one if there is; the bound, and what failed. Both count kernels that
    write over inputs where they did: a budget in which this one has as much left as in `room`."""
    if not chosen.seconds:
        return chosen, 0.0, None
    budget = peak(lives(found.graph, chosen.steps, found.written))[0] + room - chosen.peak
    arguments = (found.graph, found.order, found.seconds, found.again, budget, found.written)
    if limit is not None:

        def fits(one: Selection) -> bool:
            return _counted(found, one).peak <= room

        best = exact(*arguments, limit, chosen, fits)
        return _counted(found, best.selection), best.bound, best.failure
    try:
        bound = least(*arguments)
    except SolverFailed as error:
        return chosen, None, str(error)
    return chosen, bound if math.isfinite(bound) else None, None


def _beside(step: Step, found: MeasuredStep) -> int:
    """Bytes that were held while the step ran and are none of its results: parameters, and input
    that came meanwhile. The median over its nodes."""
    at = [_places_in_time(node) for node in step.nodes]
    begin, end = np.array(at, np.int64).reshape(-1, 2).T
    held = step_graph.lives(found.graph, begin, end)
    beside = [
        node.live - int(held.bytes[(held.begin <= moment) & (held.end >= moment)].sum())
        for node, moment in zip(step.nodes, end.tolist(), strict=True)
        if node.live is not None
    ]
    return round(statistics.median(beside)) if beside else 0


def _places_in_time(node: Node) -> tuple[int, int]:
    """Nanoseconds at which it began and ended; -1 where it did not run."""
    if node.start is None or node.end is None:
        return -1, -1
    return round(node.start * 1e9), round(node.end * 1e9)


def _largest(steps: Batched, room: int) -> tuple[MeasuredStep, int]:
    """The step with the most examples that can be done within `room` bytes, and how many those are:
    the order of the least peak is kept while there is room for more, and sought again there."""
    batch = 0
    chosen = _least((leaner(steps.step), steps.step))[1].steps
    while True:
        most = _most(steps, chosen, room)
        if most <= batch:
            break
        batch, step = most, steps.of(most)
        chosen = _least((leaner(step), step))[1].steps
    if not batch:
        raise UsageError(
            f"budget too small: persistent memory leaves {mib(max(room, 0))}, and a batch of one "
            "sample does not fit into that",
            remedy="pass a larger --budget",
        )
    return steps.of(batch), batch


def _most(steps: Batched, order: Sequence[Run], room: int) -> int:
    def fits(batch: int) -> bool:
        return peak(lives_of(steps.of(batch), order))[0] <= room

    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
        if high > MOST_EXAMPLES:
            raise UsageError(
                f"a batch of more than {low} samples fits into the budget",
                remedy="omit --largest-batch, or pass a smaller --budget",
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _places(found: MeasuredStep, chosen: Selection) -> tuple[int, ...]:
    place = {node: number for number, node in enumerate(found.order)}
    return tuple(place[step.node] for step in chosen.steps)


def _peak(found: MeasuredStep, steps: Sequence[Run]) -> Peak:
    graph = found.graph
    bytes, moment, tensors = peak(lives_of(found, steps))
    largest = tuple(
        (graph.names[graph.tensors.producer[tensor]], int(graph.tensors.bytes[tensor]))
        for tensor in tensors[:LARGEST]
    )
    return Peak(bytes, graph.names[steps[moment].node], largest)
