"""The predicted duration of a step under other cores, threads, bins, sleeps and knobs."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dltune.base.formatting import counted
from dltune.job.rank_layout import Rank, rank_cores
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Uniform
from dltune.schemas.profile import Profile
from dltune.simulate.overlap import NANOSECONDS, Partition, partition
from dltune.simulate.step_graph import StepGraph, ancestors
from dltune.simulate.workload import measured_span, workload
from dltune.system.topology import cores_for
from dltune.systems.ranks.allreduce.measurements import Call, Observed
from dltune.systems.ranks.allreduce.section import Knobs, RankCores
from dltune.systems.ranks.simulation.job import (
    ORIGINAL,
    Job,
    Method,
    Pool,
    Quantiles,
    Update,
    Waiting,
    cut,
    phases,
)
from dltune.systems.ranks.simulation.simulate import Outcome, simulate

STEPS, SEED = 60, 1
RANKS = 128  # more are not simulated for a plan: who is late is late among these
# the factor that ties the simulation to the measured step
ROUNDS, LEAST, MOST = 6, 0.2, 20.0


@dataclass(frozen=True)
class Computing:
    """A round of the steps on one rank that has its cores to itself.

    `ready`: seconds until each gradient is there, all calls' one after the other. `after`: seconds
    of the round that remain when the last one is there, without the `updates`: seconds, and the
    gradients whose sums are waited for. `busy`: cores in use, on average. `ops`: seconds of each.
    """

    ready: tuple[float, ...]
    after: float
    updates: tuple[tuple[float, tuple[int, ...]], ...]
    busy: float
    ops: tuple[float, ...]


@dataclass(frozen=True)
class Setting:
    """The way the ranks of a node run. `pool`: ranks that share cores, and how many these are.
    `reads`: the input pipeline has no cores but these. `pieces`: bytes, by gradient, of the pieces
    that travel by themselves."""

    pool: Pool
    threads: Uniform
    knobs: Knobs
    waiting: Waiting
    reads: bool = True
    pieces: Mapping[int, Sequence[int]] = field(default_factory=dict)


class Model:
    """Predictions for one job. `scale`: the factor on computing; `step`: the measured seconds.

    Two simulators run one after the other: TensorFlow's scheduling of the step's graph gives the
    time when each gradient is ready, on that many cores and threads; the simulation of background
    threads gives the time that the ranks make of it. The first is tied to the measured step (of the
    report, else of the profile): a factor on all computing makes the job, as it ran, take as long
    as it did.
    """

    def __init__(self, profile: Profile, calls: Sequence[Call], observed: Observed) -> None:
        """Raises UsageError when the profile has no op that was measured."""
        made = workload(profile)
        transfers = {(call.step, g.node) for call in calls for g in call.gradients}
        waiting = {
            node.op
            for step in profile.steps
            for node in step.nodes
            if node.type.startswith("Horovod") and node.op is not None
        }
        # the other simulation decides the time of a gradient's allreduce
        fixed = tuple(0.0 if op in waiting else t for op, t in enumerate(made.fixed))
        self._whole = dataclasses.replace(made, fixed=fixed)
        self._backward = dataclasses.replace(
            self._whole,
            graphs=tuple(
                _before(graph, [node for index, node in transfers if index == k])
                for k, graph in enumerate(made.graphs)
            ),
        )
        self.observed = observed
        self.calls = tuple(calls)
        self.graphs = made.graphs
        self.own = Uniform(profile.settings.intra, profile.settings.inter)
        self.step = observed.step or made.between + measured_span(profile)
        self.sizes = tuple(g.bytes for call in calls for g in call.gradients)
        self._jitter = _jitter(max(step.wall.spread for step in profile.steps))
        self._computed: dict[tuple[int, Uniform], Computing] = {}
        self.scale = 1.0
        self._tie()

    @property
    def original(self) -> Setting:
        """The job as it ran: the ranks of a node share all its cores, if none was bound to some."""
        seen, cores = self.observed, self._whole.machine.cores
        pool = Pool(seen.local, float(len(cores)))
        if seen.bound is not None:
            own = max(1, seen.bound // len(cores[0].cpus))
            pool = Pool(1, float(min(own, len(cores))))
        return Setting(pool, self.own, seen.knobs, seen.waiting)

    def computing(self, cores: int, threads: Uniform) -> Computing:
        """One rank's computing, alone on `cores` cores."""
        if (cores, threads) not in self._computed:
            self._computed[cores, threads] = self._compute(cores, threads)
        return self._computed[cores, threads]

    def _compute(self, cores: int, threads: Uniform) -> Computing:
        machine = self._whole.machine
        there = machine.of_cores(cores_for(machine, cores, "shared"))
        whole = dataclasses.replace(self._whole, machine=there)
        outcome = whole.uniform(threads.intra, threads.inter)
        backward = dataclasses.replace(self._backward, machine=there).uniform(
            threads.intra, threads.inter
        )
        makespans = (timeline.makespan for timeline in outcome.timelines)
        *begins, total = itertools.accumulate(makespans, initial=0.0)
        ready = tuple(
            begins[call.step] + backward.timelines[call.step].start[gradient.node]
            for call in self.calls
            for gradient in call.gradients
        )
        alike = whole.alike(threads.intra)
        core_seconds = sum(
            op.count * choice.seconds * whole.busy(index, choice)
            for index, (op, choice) in enumerate(zip(whole.ops, alike, strict=True))
            if choice is not None
        )
        busy = core_seconds / total if total else 1.0
        ops = tuple(
            fixed if choice is None else choice.seconds
            for fixed, choice in zip(whole.fixed, alike, strict=True)
        )
        remains = max(0.0, total - max(ready))
        updates = self._updates(ops, remains)
        after = max(0.0, remains - math.fsum(seconds for seconds, _ in updates)) + whole.between
        return Computing(ready, after, updates, min(float(cores), max(busy, 1e-3)), ops)

    def _updates(
        self, ops: Sequence[float], most: float
    ) -> tuple[tuple[float, tuple[int, ...]], ...]:
        """Return the updates of the round's last calls, whose sums nothing but the next round comes
        after: the work that waits for these sums and that no gradient waits for, `most` seconds in
        all."""
        last = max(call.step for call in self.calls)
        gradients = [(call.step, g.node) for call in self.calls for g in call.gradients]
        places = {node: place for place, (step, node) in enumerate(gradients) if step == last}
        graph = self.graphs[last]
        others = graph.runs - self._backward.graphs[last].runs
        found = _waiting(dataclasses.replace(graph, runs=others), places, ops)
        whole = float(found.work.sum()) / NANOSECONDS
        part = min(1.0, most / whole) if whole else 0.0
        return tuple(
            (
                seconds * part / NANOSECONDS,
                tuple(places[int(found.receives[k])] for k in needs.nonzero()[0]),
            )
            for seconds, needs in zip(found.work.tolist(), found.needs, strict=True)
            if seconds
        )

    def job(self, setting: Setting, cores: int | None = None) -> Job:
        """Return the job for the simulation of ranks. `cores`: those that a rank's computing can
        use [the pool's]."""
        seen = self.observed
        found = self._under(setting, cores)
        ready = [moment * self.scale for moment in found.ready]
        reading = seen.need.input * self.step if setting.reads else 0.0
        # it reads ahead of the step, on as many threads as that takes
        readers = float(max(1, math.ceil(2 * seen.need.input)))
        ranks = max(1, min(seen.ranks, RANKS) // setting.pool.ranks) * setting.pool.ranks
        # the time of a collective of all ranks, spread over the simulated ranks
        more = max(0.0, seen.network.start(seen.ranks) - seen.network.start(ranks))
        network = dataclasses.replace(seen.network, fixed=seen.network.fixed + more)
        job = Job(
            ranks=ranks,
            pool=setting.pool,
            tensors=self.sizes,
            phases=phases(ready, threads=found.busy, before=found.after * self.scale),
            updates=tuple(
                Update(seconds * self.scale, found.busy, places)
                for seconds, places in found.updates
            ),
            network=network,
            sync=seen.network.few_bytes(seen.ranks),
            jitter=self._jitter,
            wake=seen.wake,
            wake_busy=seen.wake_busy,
            cycle_time=setting.knobs.cycle_time,
            fusion_threshold=setting.knobs.fusion_threshold,
            cache_capacity=setting.knobs.cache_capacity,
            input_seconds=reading / readers,
            input_threads=readers if reading else 0.0,
            waiting=setting.waiting,
            cycle_seconds=seen.cycle_seconds,
        )
        return cut(job, setting.pieces)

    def waiting(self, call: Call, setting: Setting, cores: int | None = None) -> Partition:
        """Return the work that waits for the gradients of a call in its step; `cores` as in
        `job`."""
        ops = [seconds * self.scale for seconds in self._under(setting, cores).ops]
        return _waiting(self.graphs[call.step], call.places, ops)

    def _under(self, setting: Setting, cores: int | None) -> Computing:
        wanted = int(setting.pool.cores) if cores is None else cores
        return self.computing(max(1, wanted), setting.threads)

    def outcome(self, setting: Setting, method: Method, cores: int | None = None) -> Outcome:
        return simulate(self.job(setting, cores), method, steps=STEPS, seed=SEED)

    def _tie(self) -> None:
        for _ in range(ROUNDS):
            found = self.outcome(self.original, ORIGINAL).seconds
            self.scale = min(MOST, max(LEAST, self.scale * self.step / found))


def _jitter(spread: float) -> Quantiles:
    """The factor on a step's computing, normal; `spread` is half its interquartile range."""
    widths = ((0.0, -3.0), (0.25, -1.0), (0.5, 0.0), (0.75, 1.0), (0.95, 2.44), (0.99, 3.45))
    points = [(share, max(0.1, 1.0 + width * spread)) for share, width in widths]
    return Quantiles((*points, (1.0, 1.0 + 4.6 * spread)))


def _waiting(graph: StepGraph, transfers: Iterable[int], ops: Sequence[float]) -> Partition:
    """Return the work that waits for these nodes, where `ops` are the seconds of each op."""
    seconds = [
        ops[op] * runs if op >= 0 else 0.0
        for op, runs in zip(graph.op.tolist(), graph.runs.tolist(), strict=True)
    ]
    return partition(graph, dict.fromkeys(transfers, 0), seconds)


def _before(graph: StepGraph, transfers: Collection[int]) -> StepGraph:
    """A step's graph without the work that no transfer waits for."""
    runs = np.zeros(len(graph))
    wanted = list(ancestors(graph, transfers))
    runs[wanted] = graph.runs[wanted]
    return dataclasses.replace(graph, runs=runs)


# A separate core must make the step shorter by this part, for it cannot be given back when the
# component is idle ("any variation in processing needs cannot be dynamically resolved").
WORTH = 0.01
# Input pipelines that keep less than this of a core busy share.
INPUT = 0.05


@dataclass(frozen=True)
class Split:
    """`background` and `input`: separate cores, 0 when they share with computing."""

    cores: int
    background: int
    input: int

    @property
    def compute(self) -> int:
        return self.cores - self.background - self.input


@dataclass(frozen=True)
class CorePartition:
    cores: tuple[RankCores, ...]
    split: Split
    setting: Setting
    method: Method
    reasons: tuple[str, ...]


def core_partition(
    model: Model,
    machine: Machine,
    threads: Uniform | None,
    base: Setting,
    how: Method = ORIGINAL,
) -> CorePartition:
    """The split that is predicted fastest.

    `threads`: those of the main plan, if it has any. `base`, `how`: what else is planned so far.

    SCP gives cores of each local rank to its background thread, helpers, computing and input.
    Section 6.3.3 of the thesis gives each component separate cores, and names the price itself: a
    core kept for a thread that is idle most of the time is lost to computing. So each rank first
    gets its part of the node, whole tiles if possible. Within that part a component gets separate
    cores only where this makes the predicted step shorter; else it shares. A rank with one core
    shares it.
    """
    local = model.observed.local
    parts = shares(machine, local)
    smallest = min(map(len, parts))
    sharing = -(-local // len(machine.cores))  # ranks to a core, where cores are too few
    seconds: dict[Split, float] = {}
    for split in _splits(smallest, model.observed.need.input):
        setting = _setting(model, split, sharing, threads, base)
        found = model.outcome(setting, _method(split, how), split.compute).seconds
        if split.input:
            found = max(found, model.observed.need.input * model.step / split.input)
        seconds[split] = found
    best = shared = Split(smallest, 0, 0)
    for split in sorted(seconds, key=lambda split: -split.compute):
        if seconds[split] < seconds[best] * (1 - WORTH):
            best = split
    return CorePartition(
        cores=tuple(divide(part, best) for part in parts),
        split=best,
        setting=_setting(model, best, sharing, threads, base),
        method=_method(best, how),
        reasons=_reasons(model, machine, best, shared, seconds),
    )


def shares(machine: Machine, local: int) -> list[tuple[int, ...]]:
    """Each local rank's part of the node, as core indices in tile order."""
    index = {core: k for k, core in enumerate(machine.cores)}
    return [
        tuple(index[core] for core in rank_cores(machine, Rank(rank, local, ())).cores)
        for rank in range(local)
    ]


def divide(part: tuple[int, ...], split: Split) -> RankCores:
    """One rank's cores: computing first, so that it has whole tiles; the background thread's last.

    Helpers act for the background thread, when it has asked for something: they go with it.
    """
    mine = part[len(part) - split.background :] if split.background else ()
    left = part[: len(part) - len(mine)]
    reading = left[len(left) - split.input :] if split.input else ()
    compute = left[: len(left) - len(reading)]
    return RankCores(
        background=mine or compute,
        helpers=mine or compute,
        compute=compute,
        input=reading or compute,
    )


def best_threads(model: Model, cores: int) -> Uniform:
    """TensorFlow's own pools for a rank with that many cores: the fastest computing."""
    counts = sorted({1, cores, *(1 << k for k in range(cores.bit_length() - 1))})
    ways = [
        Uniform(intra, inter)
        for intra in counts
        for inter in sorted({1, min(cores, max(1, model.own.inter))})
    ]

    def seconds(threads: Uniform) -> float:
        found = model.computing(cores, threads)
        return max(found.ready, default=0.0) + found.after

    return min(ways, key=lambda threads: (seconds(threads), threads.intra, threads.inter))


def _splits(cores: int, reading: float) -> Iterator[Split]:
    for background in (0, 1):
        most = cores - background - 1 if reading >= INPUT else 0
        for own in range(min(most, round(2 * reading) + 1) + 1):
            if cores - background - own >= 1:
                yield Split(cores, background, own)


def _setting(
    model: Model, split: Split, sharing: int, threads: Uniform | None, base: Setting
) -> Setting:
    if threads is None:
        chosen = best_threads(model, split.compute)
    else:
        chosen = Uniform(min(threads.intra, split.compute), min(threads.inter, split.compute))
    pool = Pool(sharing, float(split.cores - split.input))
    return dataclasses.replace(base, pool=pool, threads=chosen, reads=not split.input)


def _method(split: Split, how: Method) -> Method:
    return dataclasses.replace(how, reserved=float(split.background))


def _reasons(
    model: Model, machine: Machine, best: Split, shared: Split, seconds: dict[Split, float]
) -> tuple[str, ...]:
    need, local = model.observed.need, model.observed.local
    told = [
        f"core-partition: {counted(local, 'rank')} on {counted(len(machine.cores), 'core')} in "
        f"{counted(len(machine.tiles), 'tile')}: {counted(best.cores, 'exclusive core')} for each "
        f"(a rank keeps {need.compute:.2f} cores busy with compute, {need.input:.2f} with input, "
        f"{need.background:.2f} with its background thread, {need.helpers:.2f} with helpers)"
    ]
    if local > len(machine.cores):
        cores = counted(len(machine.cores), "core")
        told[0] = f"core-partition: {local} ranks on {cores}: the ranks take turns on them"
    if best.cores == 1:
        told.append("core-partition: all threads of a rank share its only core")
        return tuple(told)
    own = min((s for s in seconds if s.background), key=seconds.__getitem__, default=None)
    if own is not None:
        told.append(
            "core-partition: the background thread "
            + ("gets" if best.background else "does not get")
            + f" a separate core: predicted step {seconds[own] * 1e3:.1f} ms with it, "
            f"{min(seconds[s] for s in seconds if not s.background) * 1e3:.1f} ms without"
        )
    if best.input:
        told.append(
            f"core-partition: {counted(best.input, 'core')} for input only: predicted step "
            f"{seconds[best] * 1e3:.1f} ms, {seconds[shared] * 1e3:.1f} ms with shared cores"
        )
    return tuple(told)
