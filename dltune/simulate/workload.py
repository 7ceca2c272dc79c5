"""Workload: a profile made ready for simulation: graphs of tasks, a curve per op, a machine.

`workload` builds it from a profile. `calibrated` also ties simulated times to the one run whose
time is known: the job under its own settings.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import msgspec

from dltune.analysis.step_parts import ENOUGH, is_compiled, measured, unmeasured
from dltune.base.errors import UsageError
from dltune.schemas.graph import kind, of_node
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Candidate
from dltune.schemas.profile import (
    Op,
    Placement,
    Profile,
    Settings,
    Step,
)
from dltune.simulate import engine, step_graph
from dltune.simulate.engine import CoreSet, CorunWork, FifoWork, Timeline
from dltune.simulate.op_time import Case, Curve, HillClimbing, Model, all_cases
from dltune.simulate.step_graph import StepGraph
from dltune.system.topology import placements

# Ops whose serial time is below this, in seconds, stay in TensorFlow's own pool: moving an op's
# executor thread to other cores takes about 6 us, which an op of five times that hardly notices.
SMALL = 30e-6
# Cost of admitting an op and moving its thread, in seconds: the same 6 us.
HANDOVER = 6e-6
# An op that more threads speed up by less than this part is taken to run on its caller alone: Eigen
# divides only ops that are worth it. An op that was divided keeps all its threads' cores busy,
# because a worker that has done its part searches for more work for a while before it sleeps.
UNDIVIDED = 1.1
# Slowdown of ops that run side by side, each on separate cores: a step of ResNet-50 takes 0.77 to
# 0.78 CPU seconds with one op after the other on one thread, 0.81 to 0.86 with two side by side.
# (The paper's two convolutions on half of a Xeon Phi each lose 17 and 25 %, Table III.)
CROWDING = 1.07


@dataclass(frozen=True)
class Outcome:
    """Simulated round of the steps: one execution of each, one after the other.

    `seconds` includes the time between executions; `corunning` is the mean number of ops in
    flight over the events of all steps (Fig. 4).
    """

    seconds: float
    corunning: float
    timelines: tuple[Timeline, ...]


@dataclass(frozen=True)
class Workload:
    """A job's step for the simulator: ops with their times at each way to run, on a machine. It is
    the input of the strategies.

    `curves` and `fixed` are per op of the profile: an op that is not controlled has no curve
    but a fixed time, in which it holds no core (it waits, for data or for another op); a tensor
    from another task has a separate op, which takes as long as the tensor took to come.
    `between`: seconds of a round in which no op runs. `overhead`: seconds the executor adds to
    each op; `scale`: the factor by which all ops are slower in the job than one by one, which is in
    the curves already (`calibration` finds both). `spinning`: even an op that gains nothing from
    its threads keeps all their cores busy, as under OpenMP. `oversubscription` and `crowding` as in
    `engine.CoreSet`. `held`: by op index the threads of an op whose count must stay as it is.
    `model` is the source of the curves, with its error bars; None where they were carried to
    another machine. `varying`: the spread of steps most of whose ops have other shapes each time,
    so that no order for an op is met again; None of others. `remarks`: sentences on what all this
    rests on.
    """

    machine: Machine
    ops: tuple[Op, ...]
    curves: tuple[Curve | None, ...]
    fixed: tuple[float, ...]
    graphs: tuple[StepGraph, ...]
    steps: tuple[Step, ...]
    own: Settings
    between: float
    overhead: float = 0.0
    scale: float = 1.0
    spinning: bool = False
    oversubscription: float = 0.0
    crowding: float = 1.0
    held: Mapping[int, int] = dataclasses.field(default_factory=dict)
    model: Model | None = None
    varying: float | None = None
    remarks: tuple[str, ...] = ()

    @property
    def cores(self) -> int:
        return len(self.machine.cores)

    @functools.cached_property
    def offered(self) -> Mapping[int, tuple[Placement, ...]]:
        """By thread count, the placements that the machine has for it."""
        return {n: placements(self.machine, n) for n in range(1, self.cores + 1)}

    def placed(self, curve: Curve, threads: int, places: int = 2) -> Candidate:
        """An op divided into `threads` parts, in the better of its first `places` placements.

        More parts than cores take the time of as many as there are cores.
        """
        n = min(threads, self.cores)
        best = curve.best((n, p) for p in self.offered[n][:places] or ("spread",))
        return Candidate(threads, best.placement, best.seconds)

    def uniform(self, intra: int, inter: int) -> Outcome:
        """All ops on `intra` threads in `inter` executor slots: TensorFlow's own scheduling."""
        return self.fifo(self.alike(intra), inter, threads=intra)

    def alike(self, intra: int) -> list[Candidate | None]:
        """Per op how it runs on `intra` threads that the operating system places: it spreads them.
        None for ops that are not controlled."""
        return [
            None if curve is None else self.placed(curve, intra, places=1) for curve in self.curves
        ]

    def fifo(
        self, choices: Sequence[Candidate | None], inter: int, threads: int | None = None
    ) -> Outcome:
        """Each op as in `choices`, first in first out in `inter` slots.

        `threads`: how many an op starts, when that differs from the cores it can use.
        """
        works = [
            FifoWork(self.fixed[index], 0.0, 1)
            if choice is None
            else FifoWork(
                choice.seconds, float(self.busy(index, choice)), threads or choice.threads
            )
            for index, choice in enumerate(choices)
        ]
        cores = CoreSet(
            works, self.cores, inter, self.overhead, self.oversubscription, self.crowding
        )
        return self._simulate(lambda graph: graph.fifo(cores))

    def corun(
        self,
        choices: Sequence[Candidate | None],
        candidates: Mapping[int, tuple[Candidate, ...]],
        inter: int,
        *,
        hyperthreads: bool,
        placed: Mapping[int, tuple[int, ...]] = MappingProxyType({}),
        with_cores: bool = False,
    ) -> Outcome:
        """Strategies 3 and 4: strategy 2's `choices` per op, and by op index the `candidates` of
        those that are admitted. Of the others, those that are `placed` run on these cores at once,
        as chosen; the rest is small."""
        works = [
            CorunWork(serial=self.fixed[index], choice=Candidate(1, "spread", 0.0), detached=True)
            if choice is None
            else CorunWork(
                serial=self.serial(index),
                choice=self._admitted(choice),
                candidates=tuple(map(self._admitted, candidates.get(index, ()))),
                admitted=index in candidates,
                placed=placed.get(index, ()),
            )
            for index, choice in enumerate(choices)
        ]
        return self._simulate(
            lambda graph: graph.corun(
                works,
                self.machine,
                inter=inter,
                overhead=self.overhead,
                crowding=self.crowding,
                hyperthreads=hyperthreads,
                with_cores=with_cores,
            )
        )

    def apart(self, nodes: Collection[str]) -> Workload:
        """Return the workload with a separate op for each of these nodes, whose key is the node's
        identity (`opkey.of_node`); nodes missing in the graphs are left out."""
        if not nodes:
            return self
        places = {
            of_node(step.signature, name): (k, node)
            for k, (step, graph) in enumerate(zip(self.steps, self.graphs, strict=True))
            for node, name in enumerate(graph.names)
        }
        ops, curves, fixed = list(self.ops), list(self.curves), list(self.fixed)
        op_of = [graph.op.copy() for graph in self.graphs]
        for identity in nodes:
            k, node = places.get(identity, (0, -1))
            was = int(op_of[k][node]) if node >= 0 else -1
            if was < 0:
                continue
            op_of[k][node] = len(ops)
            ops.append(msgspec.structs.replace(ops[was], key=identity, count=1))
            curves.append(curves[was])
            fixed.append(fixed[was])
        changed = (
            dataclasses.replace(graph, op=op) for graph, op in zip(self.graphs, op_of, strict=True)
        )
        return dataclasses.replace(
            self, ops=tuple(ops), curves=tuple(curves), fixed=tuple(fixed), graphs=tuple(changed)
        )

    def busy(self, index: int, choice: Candidate) -> int:
        """Return the number of cores that this op keeps busy with this choice."""
        divided = self.spinning or self.serial(index) > UNDIVIDED * choice.seconds
        return min(choice.threads, self.cores) if divided else 1

    def serial(self, index: int) -> float:
        """Seconds of that op on one thread, in the job."""
        return self._serial[index]

    @functools.cached_property
    def _serial(self) -> list[float]:
        return [
            fixed if curve is None else curve.serial
            for curve, fixed in zip(self.curves, self.fixed, strict=True)
        ]

    def small(self, index: int) -> bool:
        """Too short to be admitted one by one."""
        return self.serial(index) < SMALL

    def calibrated(self, overhead: float, scale: float) -> Workload:
        """With this time for the executor and this factor on the ops' own times."""
        curves = self.curves
        if scale != self.scale:
            curves = tuple(curve and curve.scaled(scale / self.scale) for curve in curves)
        return dataclasses.replace(self, curves=curves, overhead=overhead, scale=scale)

    def _admitted(self, candidate: Candidate) -> Candidate:
        return Candidate(candidate.threads, candidate.placement, candidate.seconds + HANDOVER)

    def _simulate(self, execute: Callable[[engine.Graph], Timeline]) -> Outcome:
        timelines = tuple(
            execute(engine.Graph(graph.successors, graph.op, graph.runs)) for graph in self.graphs
        )
        events = [sum(e > s for s, e in zip(t.start, t.end, strict=True)) for t in timelines]
        flights = sum(t.corunning * n for t, n in zip(timelines, events, strict=True))
        return Outcome(
            seconds=self.between + sum(timeline.makespan for timeline in timelines),
            corunning=flights / sum(events) if sum(events) else 0.0,
            timelines=timelines,
        )


def workload(profile: Profile, model: Model | None = None) -> Workload:
    """The profile's steps and ops on its own machine.

    Op times come from the ops' own curves, or from `model` where it knows an op.

    Raises UsageError when the profile has no step, no thread samples, or a graph with a cycle.
    """
    if not profile.steps:
        raise UsageError(
            "the profile has no training step" + _why(profile),
            remedy="profile the job again, long enough for several steps",
        )
    if not any(op.times for op in profile.ops):
        raise UsageError(
            "the profile has no op times by thread count" + _why(profile),
            remedy="profile the job again, and let it run until dltune profile tries thread counts",
        )
    curves = [Curve.measured(op.times) if op.times else None for op in profile.ops]
    varying = None
    if measured(profile) < ENOUGH:
        curves = _with_the_rest(profile, curves)
        spreads = (one.ops.spread for step in profile.steps for one in step.tried)
        varying = max(spreads, default=math.inf)
    if model is not None:
        curves = predicted(model, profile, curves)
    made = Workload(
        machine=profile.machine,
        ops=profile.ops,
        curves=tuple(curves),
        fixed=tuple(op.own or 0.0 for op in profile.ops),
        graphs=tuple(map(step_graph.acyclic, profile.steps)),
        steps=profile.steps,
        own=profile.settings,
        between=_between(profile.steps),
        crowding=CROWDING,
        model=model or HillClimbing.of(profile.ops),
        varying=varying,
        remarks=tuple(unmeasured(profile)),
    )
    # all receives are one op, but each tensor waits for those before it on its link
    came = {
        of_node(step.signature, node.name): node.end - node.start
        for step in profile.steps
        for node in step.nodes
        if node.received and node.start is not None and node.end is not None
    }
    made = made.apart(came)
    fixed = (came.get(op.key, t) for op, t in zip(made.ops, made.fixed, strict=True))
    return dataclasses.replace(made, fixed=tuple(fixed))


def _with_the_rest(profile: Profile, curves: Sequence[Curve | None]) -> list[Curve | None]:
    """Return the curves; ops that were not met in each case share the curve of the rest of the
    steps. Unchanged if the rest is not known."""
    totals: dict[Case, float] = defaultdict(float)
    for step in profile.steps:
        for tried in step.tried:
            totals[tried.threads, tried.placement] += tried.ops.median
    rest = {
        case: total
        - sum(
            time.median * op.count
            for op in profile.ops
            for time in op.times
            if (time.threads, time.placement) == case
        )
        for case, total in totals.items()
    }
    own = max((case for case in rest if case[0] <= profile.settings.intra), default=None)
    if own is None or len(rest) < 2 or min(rest.values()) <= 0:
        return list(curves)
    alike = Curve.of({case: seconds / rest[own] for case, seconds in rest.items()})
    return [
        alike.scaled(op.own)
        if curve is None and op.own and kind(op.type) == "ops" and not is_compiled(op)
        else curve
        for op, curve in zip(profile.ops, curves, strict=True)
    ]


def predicted(model: Model, profile: Profile, curves: Sequence[Curve | None]) -> list[Curve | None]:
    """The curve of each op through what `model` predicts for every case of the machine.

    An op that the model does not know keeps its curve.
    """
    cases = all_cases(profile.machine)
    found = list(curves)
    for index, op in enumerate(profile.ops):
        if found[index] is not None:
            with contextlib.suppress(KeyError):
                found[index] = Curve.of({c: model.predict(op.key, *c).seconds for c in cases})
    return found


def measured_span(profile: Profile) -> float:
    """Seconds from first op to last of a round, as the job itself ran."""
    return sum(step.span.median for step in profile.steps)


def _between(steps: Sequence[Step]) -> float:
    """Seconds of a round in which no step runs.

    From one start of a step to its next lie all the steps of a GAN, so the rarest step's wall time
    is the round's, less what all executions in it take.
    """
    rarest = max(steps, key=lambda step: step.wall.median)
    busy = sum(s.span.median * s.executions / rarest.executions for s in steps)
    return max(0.0, rarest.wall.median - busy)


def _why(profile: Profile) -> str:
    return f" (it is incomplete: {profile.partial})" if profile.partial else ""


# Calibration to the measured span

# The most that TensorFlow's executor may be made responsible for, in seconds per op: reading the
# attribute, hashing and two clock reads are 0.5 us, and a hand-over between threads about 6 us.
MAX_OVERHEAD = 10e-6
# Where Python calls each op, so long may it and the framework's dispatch take to come to the next.
MAX_EAGER_OVERHEAD = 1e-3
# The simulated span may differ by this part.
TOLERANCE = 1e-4
ROUNDS = 30
# Ops that take more than this times as long in the job as one by one, or less than the inverse,
# were measured at moments that do not compare. Our choice: beyond what co-running ops on the
# paper's machine lose to each other (25 %, Table III).
DOUBTFUL = 1.3


@dataclass(frozen=True)
class Calibration:
    """Correction that ties simulated times to the job's own measured run.

    Ops were measured one by one; in the job the executor spends time on each, and caches are
    shared. The first is a fixed time per op, found so that the simulated span equals the measured
    one. The remainder that it cannot explain (it has a limit) is a factor on all op times.

    `overhead` in seconds per op, `scale` on all op times, `span` the measured one in seconds.
    """

    overhead: float
    scale: float
    span: float

    @property
    def doubtful(self) -> bool:
        """The job's own run and its ops' times do not fit each other."""
        return not 1 / DOUBTFUL <= self.scale <= DOUBTFUL


def calibrated(profile: Profile, model: Model | None = None) -> tuple[Workload, Calibration]:
    """Return the profile's workload, tied to its own measured span. Raises UsageError as
    `workload`. A job with more threads for an op than cores is not used: its threads wait for one
    another, which the simulator does not model."""
    made = workload(profile, model)
    if is_oversubscribed(profile):
        return made, Calibration(0.0, 1.0, 0.0)
    eager = profile.framework.capabilities.is_eager
    found = calibration(made, measured_span(profile), MAX_EAGER_OVERHEAD if eager else MAX_OVERHEAD)
    return made.calibrated(found.overhead, found.scale), found


def is_oversubscribed(profile: Profile) -> bool:
    """Return True if an op of the job had more threads than the machine has cores."""
    return profile.settings.intra > len(profile.machine.cores)


def calibration(made: Workload, span: float, most: float = MAX_OVERHEAD) -> Calibration:
    """What makes the workload under its own settings take `span` seconds from first op to last; of
    overhead for an op no more than `most`."""

    def simulated(overhead: float, scale: float) -> float:
        there = made.calibrated(overhead, scale)
        return there.uniform(made.own.intra, made.own.inter).seconds - there.between

    if span <= 0:
        return Calibration(0.0, 1.0, span)
    low = simulated(0.0, 1.0)
    high = simulated(most, 1.0)
    if low <= span <= high:
        return Calibration(_solve(lambda x: simulated(x, 1.0), 0.0, most, span), 1.0, span)
    overhead = 0.0 if low > span else most
    start = low if low > span else high
    if start <= 0:
        return Calibration(0.0, 1.0, span)
    guess = span / start
    scale = _solve(lambda x: simulated(overhead, x), min(1.0, guess / 2), max(1.0, guess * 2), span)
    return Calibration(overhead, scale, span)


def _solve(f: Callable[[float], float], low: float, high: float, wanted: float) -> float:
    """Where the rising f is `wanted`, by false position that falls back to halving."""
    f_low, f_high = f(low), f(high)
    middle = low
    for round_ in range(ROUNDS):
        if f_high <= f_low:
            return low
        part = (wanted - f_low) / (f_high - f_low) if round_ % 3 else 0.5
        middle = low + (high - low) * min(1.0, max(0.0, part))
        found = f(middle)
        if abs(found - wanted) <= TOLERANCE * wanted:
            break
        if found < wanted:
            low, f_low = middle, found
        else:
            high, f_high = middle, found
    return middle
