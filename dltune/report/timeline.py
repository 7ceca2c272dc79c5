"""Timelines of a step: the measured execution, and executions simulated from the profile.

A timeline puts a step on a time axis: the ops with their times, rows and concurrency, and the
receives from other tasks, with their times. Times are whole nanoseconds since the first op of the
execution. Slices of one row never overlap and none is empty: an op that took less than a nanosecond
is left out.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dltune.base.errors import DltuneError
from dltune.plan.plan import ordered_sections
from dltune.plan.planner import load_planner
from dltune.plan.threads.decide import Strategy, per_instance, per_type, planned
from dltune.plan.threads.replay import replayed
from dltune.schemas.plan import Plan, Threads
from dltune.schemas.profile import Profile, Step
from dltune.simulate import engine, step_graph
from dltune.simulate.machine_transfer import transferred
from dltune.simulate.step_graph import lives
from dltune.simulate.workload import Calibration, Outcome, Workload, calibrated
from dltune.system.topology import BUILTIN_MACHINES

NANOSECONDS = 1e9


@dataclass(frozen=True)
class Slice:
    """A node of the step from `start` to `end`. `cores` is empty where they are not known."""

    node: int
    start: int
    end: int
    cores: tuple[int, ...] = ()


@dataclass(frozen=True)
class Row:
    """The slices in one place, in order of time."""

    label: str
    slices: tuple[Slice, ...]


@dataclass(frozen=True)
class Timeline:
    """`slices`: each op once, by start. A row is a core where the cores are known (an op on
    several cores is in the row of each); else it holds ops that one thread could have run.

    `links`: a row for each link, of the receives from another task, which are not in `slices`. All
    are requested when a step begins and come one after the other. So a slice is not the wait of the
    receive but its longest possible travel time: since the previous receive had come. A receive
    that is reported without bytes has no slice.
    """

    title: str
    slices: tuple[Slice, ...]
    rows: tuple[Row, ...]
    links: tuple[Row, ...] = ()

    @property
    def whole(self) -> tuple[Slice, ...]:
        """Receives and ops."""
        return (*(piece for link in self.links for piece in link.slices), *self.slices)

    @property
    def end(self) -> int:
        return max((piece.end for piece in self.whole), default=0)


def measured(step: Step) -> Timeline:
    """The execution that the profile kept, without slices when it has none.

    The profile does not say which thread ran an op, so rows are lanes.
    """
    found = [
        Slice(index, round(node.start * NANOSECONDS), round(node.end * NANOSECONDS))
        for index, node in enumerate(step.nodes)
        if node.start is not None and node.end is not None
    ]
    slices, links = _apart(found, step)
    return Timeline("measured", slices, _lanes("lane", slices), links)


def simulated(title: str, found: engine.Timeline, step: Step) -> Timeline:
    """A simulated execution of the step; on cores when it was simulated `with_cores`."""
    pieces = [
        Slice(
            node,
            round(start * NANOSECONDS),
            round(end * NANOSECONDS),
            found.cores[node] if found.cores else (),
        )
        for node, (start, end) in enumerate(zip(found.start, found.end, strict=True))
    ]
    slices, links = _apart(pieces, step)
    known = any(piece.cores for piece in slices)
    return Timeline(title, slices, _cores(slices) if known else _lanes("slot", slices), links)


def corunning(slices: Sequence[Slice]) -> list[tuple[int, int]]:
    """(time, ops in flight from then on), at each moment at which an op starts or ends (Fig. 4),
    counted when all that happens at that moment has happened."""
    return levels((s.start, s.end, 1) for s in slices)


def levels(spans: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """(time, sum of the weights of the (start, end, weight) that are open from then on)."""
    change: defaultdict[int, int] = defaultdict(int)
    for start, end, weight in spans:
        change[start] += weight
        change[end] -= weight
    times = sorted(change)
    return list(zip(times, itertools.accumulate(change[time] for time in times), strict=True))


def mean_corunning(slices: Sequence[Slice]) -> float:
    """The mean of `corunning` over its events, as a simulated `Timeline.corunning` is: each start
    and each end is an event, also where several fall on one moment."""
    counts = dict(corunning(slices))
    events = [moment for piece in slices for moment in (piece.start, piece.end)]
    return sum(counts[moment] for moment in events) / len(events) if events else 0.0


def _apart(pieces: Iterable[Slice], step: Step) -> tuple[tuple[Slice, ...], tuple[Row, ...]]:
    """Return the ops, and a row of the receives over each link."""
    ops: list[Slice] = []
    came: defaultdict[str, list[Slice]] = defaultdict(list)
    for piece in sorted(pieces, key=lambda piece: (piece.end, piece.start)):
        node = step.nodes[piece.node]
        if node.received is None:
            ops.append(piece)
        elif not node.outputs or any(tensor.bytes for tensor in node.outputs):
            there = came[node.received[0]]
            before = there[-1].end if there else 0
            there.append(replace(piece, start=max(piece.start, before)))
    links = (Row(f"from {_short(sender)}", _ordered(came[sender])) for sender in sorted(came))
    return _ordered(ops), tuple(links)


def _short(task: str) -> str:
    """Return the short form of a task, such as "ps:0"."""
    return task.removeprefix("/job:").replace("/task:", ":")


def _ordered(slices: Iterable[Slice]) -> tuple[Slice, ...]:
    kept = (piece for piece in slices if piece.end > piece.start)
    return tuple(sorted(kept, key=lambda piece: (piece.start, piece.end, piece.node)))


def _lanes(label: str, slices: Sequence[Slice]) -> tuple[Row, ...]:
    """The fewest rows without overlap: each slice goes to the first row that is free."""
    rows: list[list[Slice]] = []
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    for piece in slices:
        while busy and busy[0][0] <= piece.start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            row = heapq.heappop(free)
        else:
            row = len(rows)
            rows.append([])
        rows[row].append(piece)
        heapq.heappush(busy, (piece.end, row))
    return tuple(Row(f"{label} {n + 1}", tuple(row)) for n, row in enumerate(rows))


def _cores(slices: Sequence[Slice]) -> tuple[Row, ...]:
    """A row for each core, and further ones where a core ran several ops at once. Ops that held no
    core (they waited, or were too small to be given one) come last."""
    held: defaultdict[int, list[Slice]] = defaultdict(list)
    for piece in slices:
        for core in piece.cores:
            held[core].append(piece)
    rows = [
        Row(f"core {core}" + (f" ({n + 1})" if n else ""), row.slices)
        for core in sorted(held)
        for n, row in enumerate(_lanes("", held[core]))
    ]
    return (*rows, *_lanes("no core", [piece for piece in slices if not piece.cores]))


# A step with all its timelines

CO_RUN = Strategy(per_type=True, corun=True)


@dataclass(frozen=True)
class Execution:
    """A step with all its timelines, as drawn on the page and in Perfetto: the measured execution,
    and executions simulated from the profile, under settings. `timelines`: the measured one first,
    where there is one. `inter` is the inter-op parallelism that TensorFlow recommends, the line in
    Fig. 4."""

    step: Step
    timelines: tuple[Timeline, ...]
    inter: int


@dataclass(frozen=True)
class Simulation:
    """`outcome` has a timeline for each step."""

    title: str
    outcome: Outcome


@dataclass(frozen=True)
class Simulations:
    """The simulations. `calibration` ties simulated times to the measured span. `remark`: a
    note on anything that could not be simulated."""

    found: Sequence[Simulation]
    calibration: Calibration | None
    remark: str | None = None


def executions(profile: Profile, plan: Plan | None) -> tuple[list[Execution], Simulations]:
    """One for each step of the profile, and what the simulations among them rest on."""
    made = simulations(profile, plan)
    sections = ordered_sections(plan) if plan and made.calibration else []
    found = []
    for index, step in enumerate(profile.steps):
        timelines = (
            measured(step),
            *(simulated(s.title, s.outcome.timelines[index], step) for s in made.found),
            *(
                simulated(f"simulated: {title}", timeline, step)
                for name, section in sections
                for title, timeline in load_planner(name).timelines(section, profile, step)
            ),
        )
        kept = tuple(timeline for timeline in timelines if timeline.slices)
        found.append(Execution(step, kept, profile.machine.sockets))
    return found, made


def live_bytes(step: Step, slices: Sequence[Slice]) -> list[tuple[int, int]]:
    """(nanoseconds, bytes from then on) that the ops of a step need over one execution, by the
    graph, without what outlives it."""
    graph = step_graph.graph(step)
    start, end = (np.full(len(graph), -1, np.int64) for _ in range(2))
    nodes = [piece.node for piece in slices]
    start[nodes] = [piece.start for piece in slices]
    end[nodes] = [piece.end for piece in slices]
    found = lives(graph, start, end)
    return levels(zip(found.begin.tolist(), found.end.tolist(), found.bytes.tolist(), strict=True))


def simulations(profile: Profile, plan: Plan | None) -> Simulations:
    """The job's own settings, the plan's, and co-running by strategy 3, all on the same machine.

    What cannot be simulated (no thread samples, no compiler) is a remark and not an error: the page
    shows the rest.
    """
    try:
        made, calibration = calibrated(profile)
    except DltuneError as error:
        return Simulations((), None, f"no simulated timelines: {error}")
    own = made.own
    title = f"simulated: own settings {own.intra}x{own.inter}"
    found = [Simulation(title, made.uniform(own.intra, own.inter))]
    remark = None
    section = plan.of(Threads) if plan else None
    if plan and section:
        known = (profile.machine, *BUILTIN_MACHINES.values())
        there = next((machine for machine in known if machine.fingerprint == plan.machine), None)
        if there is None:
            remark = (
                f"no timeline of the plan: it is for {plan.machine_name} with {plan.cores} cores, "
                "whose description is missing"
            )
        else:
            made = transferred(made, there)
            uniform = section.uniform
            same = there == profile.machine and not section.ops
            if not same or (uniform.intra, uniform.inter) != (own.intra, own.inter):
                title = f"simulated: plan {section.strategy}"
                found.append(Simulation(title, replayed(made, section)))
    if section is None or not section.corun:
        found.append(Simulation(f"simulated: co-running ops ({CO_RUN})", _corun(made)))
    return Simulations(found, calibration, remark)


def _corun(made: Workload) -> Outcome:
    option = planned(made, CO_RUN, per_type(made, per_instance(made)))
    return made.corun(
        option.choices,
        option.candidates,
        option.uniform.inter,
        hyperthreads=False,
        with_cores=True,
    )
