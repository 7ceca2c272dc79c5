"""The engine against a slow, obvious oracle, and the properties every timeline must have."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dltune.schemas.machine import SCHEMA, Core, Machine
from dltune.schemas.plan import Candidate
from dltune.simulate.engine import CoreSet, CorunWork, FifoWork, Graph, Timeline
from dltune.simulate.step_graph import CSR


def machine(cores: int, tile: int = 2, hardware: int = 1, smt: float | None = None) -> Machine:
    return Machine(
        schema=SCHEMA,
        name="test",
        cores=tuple(
            Core(
                cpus=tuple(c + cores * h for h in range(hardware)), tile=c // tile, socket=0, numa=0
            )
            for c in range(cores)
        ),
        smt_throughput=smt,
    )


# --- the oracle: one pass of plain Python over everything at every event ---


def tasks(inputs, op, runs) -> Graph:
    """`inputs`: what each task waits for. `runs`: None where each op runs once."""
    successors = CSR.of(inputs).distinct().transposed(len(inputs))
    counts = [1.0] * len(inputs) if runs is None else runs
    return Graph(successors, np.array(op, np.int32), np.array(counts, np.float64))


@dataclass
class Flight:
    task: int
    left: float
    counted: bool


@dataclass
class Admitted:
    task: int
    work: CorunWork
    started: float
    predicted: float
    cores: list[int]
    second: bool


@dataclass
class Waiting:
    task: int
    work: CorunWork
    overtaken: int = 0


def pick(idle: list[int], tiles: list[list[int]], n: int, placement: str) -> list[int]:
    free = [[c for c in tile if c in idle] for tile in tiles]
    free = sorted((f for f in free if f), key=lambda f: -len(f))
    chosen: list[int] = []
    if placement == "spread":
        for round_ in range(max(map(len, free))):
            chosen += [f[round_] for f in free if round_ < len(f)]
        return sorted(chosen[:n])
    for i, f in enumerate(free):
        rest = n - len(chosen)
        if rest == 0:
            break
        if len(f) > rest:
            f = min((g for g in free[i:] if len(g) >= rest), key=len)
        chosen += f[:rest]
    return sorted(chosen)


@dataclass
class Oracle:
    inputs: list[list[int]]
    op: list[int]
    runs: list[float]
    inter: int
    overhead: float
    now: float = 0.0
    events: int = 0
    flying: int = 0
    moment: list[float] = field(default_factory=list)
    sampled: int = 0
    start: dict[int, float] = field(default_factory=dict)
    end: dict[int, float] = field(default_factory=dict)
    cores: dict[int, list[int]] = field(default_factory=dict)
    seconds: set[int] = field(default_factory=set)
    queue: list[int] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    flights: list[Flight] = field(default_factory=list)

    def detached(self, task: int) -> bool:
        raise NotImplementedError

    def starts(self) -> list[tuple[int, float, bool]]:
        raise NotImplementedError

    def rate(self, task: int) -> float:
        raise NotImplementedError

    def ended(self, task: int) -> None:
        pass

    def ready(self, task: int) -> None:
        (self.free if self.detached(task) else self.queue).append(task)

    def event(self, change: int) -> None:
        self.flying += change
        self.moment.append(self.now)

    def finish(self, task: int, counted: bool) -> None:
        self.end[task] = self.now
        if counted:
            self.event(-1)
        self.ended(task)
        for other in range(len(self.inputs)):
            if task in self.inputs[other] and all(i in self.end for i in self.inputs[other]):
                self.ready(other)

    def run(self) -> Timeline:
        for task in range(len(self.inputs)):
            if not self.inputs[task]:
                self.ready(task)
        while True:
            while True:
                starts = self.starts()
                for task, seconds, counted in starts:
                    self.start[task] = self.now
                    if counted:
                        self.event(1)
                    if seconds > 1e-12:
                        self.flights.append(Flight(task, seconds, counted))
                empty = [(t, counted) for t, seconds, counted in starts if seconds <= 1e-12]
                for task, counted in empty:
                    self.finish(task, counted)
                if not empty:
                    break
            self.sampled += len(self.moment) * self.flying
            self.events += len(self.moment)
            self.moment.clear()
            if not self.flights:
                break
            rates = {f.task: self.rate(f.task) for f in self.flights}
            step = min(f.left / rates[f.task] for f in self.flights)
            self.now += step
            for f in self.flights:
                f.left -= step * rates[f.task]
            done = [f for f in self.flights if f.left <= 1e-12]
            self.flights = [f for f in self.flights if f.left > 1e-12]
            for f in done:
                self.finish(f.task, f.counted)
        tasks = range(len(self.inputs))
        return Timeline(
            [self.start[t] for t in tasks],
            [self.end[t] for t in tasks],
            self.now,
            self.sampled / self.events if self.events else 0.0,
            [tuple(self.cores.get(t, ())) for t in tasks],
            frozenset(self.seconds),
        )


@dataclass
class FifoOracle(Oracle):
    ops: list[FifoWork] = field(default_factory=list)
    capacity: int = 1
    oversubscription: float = 0.0
    crowding: float = 1.0
    running: list[int] = field(default_factory=list)

    def detached(self, task: int) -> bool:
        return self.op[task] < 0 or self.ops[self.op[task]].busy <= 0 or self.runs[task] <= 0

    def starts(self) -> list[tuple[int, float, bool]]:
        out = []
        for t in self.free:
            seconds = self.ops[self.op[t]].seconds * self.runs[t] if self.op[t] >= 0 else 0.0
            out.append((t, seconds, False))
        self.free = []
        while len(self.running) < self.inter and self.queue:
            t = self.queue.pop(0)
            self.running.append(t)
            out.append((t, (self.ops[self.op[t]].seconds + self.overhead) * self.runs[t], True))
        return out

    def ended(self, task: int) -> None:
        if task in self.running:
            self.running.remove(task)

    def busy(self, op: FifoWork) -> float:
        whole = op.seconds + self.overhead
        return op.busy if whole == 0 else op.busy * op.seconds / whole + self.overhead / whole

    def rate(self, task: int) -> float:
        if self.detached(task):
            return 1.0
        busy = sum(self.busy(self.ops[self.op[t]]) for t in self.running)
        threads = sum(self.ops[self.op[t]].threads for t in self.running)
        excess = max(0.0, threads / self.capacity - 1)
        rate = min(1.0, self.capacity / busy) / (1 + self.oversubscription * excess)
        beside = len(self.running) > 1 and busy <= self.capacity * (1 + 1e-9)
        return rate / self.crowding if beside else rate


@dataclass
class CorunOracle(Oracle):
    ops: list[CorunWork] = field(default_factory=list)
    machine: Machine | None = None
    hyperthreads: bool = False
    crowding: float = 1.0
    slots: list[int] = field(default_factory=list)
    waiting: list[Waiting] = field(default_factory=list)
    admitted: list[Admitted] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert self.machine
        self.smt = self.machine.smt_throughput or 41.1 / 39.9
        self.hardware = [len(core.cpus) for core in self.machine.cores]
        self.tiles = [list(tile) for tile in self.machine.tiles]

    def detached(self, task: int) -> bool:
        return self.op[task] < 0 or self.ops[self.op[task]].detached or self.runs[task] <= 0

    def ended(self, task: int) -> None:
        if task in self.slots:
            self.slots.remove(task)
        self.admitted = [a for a in self.admitted if a.task != task]

    def users(self, core: int) -> int:
        return sum(core in self.cores[t] for t in self.slots if t in self.cores)

    def rate(self, task: int) -> float:
        if self.detached(task):
            return 1.0
        shares = []
        for core in self.cores[task]:
            together = self.smt if self.hardware[core] > 1 else 1.0
            shares.append(1.0 if self.users(core) == 1 else together / self.users(core))
        flying = sum(not self.detached(f.task) for f in self.flights)
        return sum(shares) / len(shares) / (self.crowding if flying > 1 else 1.0)

    def starts(self) -> list[tuple[int, float, bool]]:
        out = []
        for t in self.free:
            seconds = self.ops[self.op[t]].serial * self.runs[t] if self.op[t] >= 0 else 0.0
            out.append((t, seconds, False))
        self.free = []
        while len(self.slots) < self.inter and self.queue:
            t = self.queue.pop(0)
            work = self.ops[self.op[t]]
            if work.placed:
                self.slots.append(t)
                self.cores[t] = sorted(work.placed)
                out.append((t, (work.choice.seconds + self.overhead) * self.runs[t], True))
                continue
            if work.admitted:
                self.slots.append(t)
                self.waiting.append(Waiting(t, scaled(work, self.runs[t])))
                continue
            core = min(range(len(self.hardware)), key=lambda c: (self.users(c), c))
            self.cores[t] = [core]
            self.slots.append(t)
            out.append((t, (work.serial + self.overhead) * self.runs[t], True))
        while (admission := self.decide()) is not None:
            waiting, seconds, cores, second = admission
            for w in self.waiting:
                if w is waiting:
                    break
                w.overtaken += 1
            self.waiting.remove(waiting)
            t, work = waiting.task, waiting.work
            self.admitted.append(Admitted(t, work, self.now, seconds, cores, second))
            self.cores[t] = cores
            if second:
                self.seconds.add(t)
            base = work.serial if second else seconds
            out.append((t, base + self.overhead * self.runs[t], True))
        return out

    def decide(self) -> tuple[Waiting, float, list[int], bool] | None:
        if not self.waiting:
            return None
        everything = len(self.hardware)
        held = {c for a in self.admitted if not a.second for c in a.cores}
        idle = [c for c in range(everything) if c not in held]

        def need(c: Candidate) -> int:
            return min(c.threads, everything)

        def on(w: Waiting, c: Candidate) -> tuple[Waiting, float, list[int], bool]:
            return w, c.seconds, pick(idle, self.tiles, need(c), c.placement), False

        patient = [w for w in self.waiting if w.overtaken < 15]
        aged = [w for w in self.waiting if w.overtaken >= 15]
        if not self.admitted:
            longest_first = sorted(patient, key=lambda w: -w.work.choice.seconds)
            w = (aged or longest_first)[0]
            return on(w, w.work.choice)
        longest = max(max(0.0, a.started + a.predicted - self.now) for a in self.admitted) + 1e-9
        if idle:
            for w in self.waiting:
                fitting = [
                    c for c in w.work.candidates if need(c) <= len(idle) and c.seconds <= longest
                ]
                if fitting:
                    return on(w, min(fitting, key=lambda c: c.threads))
            fitting_choice = [w for w in self.waiting if need(w.work.choice) <= len(idle)]
            if not fitting_choice:
                return None
            w = max(fitting_choice, key=lambda w: w.work.choice.seconds)
            return None if aged and w not in aged else on(w, w.work.choice)
        if not self.hyperthreads:
            return None
        on_second = [c for a in self.admitted if a.second for c in a.cores]
        room = [c for c in range(everything) if on_second.count(c) < self.hardware[c] - 1]
        if not room:
            return None
        w = min(self.waiting, key=lambda w: w.work.serial)
        predicted = w.work.serial * 2 / self.smt
        if predicted > longest:
            return None
        return w, predicted, [min(room, key=lambda c: (on_second.count(c), c))], True


def scaled(work: CorunWork, runs: float) -> CorunWork:
    def times(c: Candidate) -> Candidate:
        return Candidate(c.threads, c.placement, c.seconds * runs)

    return CorunWork(
        serial=work.serial * runs,
        choice=times(work.choice),
        candidates=tuple(map(times, work.candidates)),
    )


# --- graphs and ops ---

# sixteenths: sums and differences are exact, so equal times are equal in both
times = st.integers(1, 64).map(lambda n: n / 16)


@st.composite
def graphs(draw: st.DrawFn, ops: int) -> tuple[list[list[int]], list[int], list[float]]:
    tasks = draw(st.integers(1, 24))
    inputs = [
        sorted(draw(st.sets(st.integers(0, t - 1), max_size=3))) if t else [] for t in range(tasks)
    ]
    op = [draw(st.integers(-1, ops - 1)) for _ in range(tasks)]
    runs = [draw(st.sampled_from([0.0, 1.0, 1.0, 1.0, 2.0])) for _ in range(tasks)]
    return inputs, op, runs


@st.composite
def fifo_cases(draw: st.DrawFn):
    ops = draw(
        st.lists(
            st.builds(
                FifoWork, times, st.sampled_from([0.0, 0.5, 1.0, 2.0, 4.0]), st.integers(1, 4)
            ),
            min_size=1,
            max_size=5,
        )
    )
    return ops, draw(graphs(len(ops)))


@st.composite
def corun_cases(draw: st.DrawFn):
    cores = draw(st.sampled_from([1, 2, 4, 7, 68]))
    there = machine(
        cores,
        tile=draw(st.sampled_from([1, 2, 3])),
        hardware=draw(st.sampled_from([1, 2, 4])),
        smt=draw(st.sampled_from([None, 1.0, 1.25])),
    )
    candidate = st.builds(
        Candidate, st.integers(1, cores + 1), st.sampled_from(["spread", "shared"]), times
    )
    work = st.builds(
        CorunWork,
        serial=times,
        choice=candidate,
        candidates=st.lists(candidate, max_size=3).map(tuple),
        admitted=st.sampled_from([True, True, False]),
        detached=st.sampled_from([False, False, False, True]),
        placed=st.one_of(
            st.just(()),
            st.just(()),
            st.sets(st.integers(0, cores - 1), max_size=4).map(lambda some: tuple(sorted(some))),
        ),
    )
    ops = draw(st.lists(work, min_size=1, max_size=6))
    return there, ops, draw(graphs(len(ops)))


def same(found: Timeline, expected: Timeline) -> None:
    assert list(found.start) == pytest.approx(list(expected.start), abs=1e-9)
    assert list(found.end) == pytest.approx(list(expected.end), abs=1e-9)
    assert found.makespan == pytest.approx(expected.makespan, abs=1e-9)
    assert found.corunning == pytest.approx(expected.corunning)


def inputs_first(timeline: Timeline, inputs: list[list[int]]) -> None:
    for task, before in enumerate(inputs):
        for other in before:
            assert timeline.start[task] >= timeline.end[other] - 1e-12


@settings(deadline=None, max_examples=200)
@given(
    fifo_cases(),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.125, 0.5]),
    st.sampled_from([1.0, 1.25]),
)
def test_fifo_gives_the_oracle_s_timeline(case, cores, inter, overhead, crowding) -> None:
    ops, (inputs, op, runs) = case
    more = {"oversubscription": overhead, "crowding": crowding}
    found = tasks(inputs, op, runs).fifo(CoreSet(ops, cores, inter, overhead, **more))
    oracle = FifoOracle(inputs, op, runs, inter, overhead, ops=ops, capacity=cores, **more)
    same(found, oracle.run())
    inputs_first(found, inputs)


@settings(deadline=None, max_examples=200)
@given(fifo_cases(), st.integers(1, 4), st.integers(1, 5))
def test_fifo_is_no_faster_than_its_bounds(case, cores, inter) -> None:
    ops, (inputs, op, runs) = case
    found = tasks(inputs, op, runs).fifo(CoreSet(ops, cores, inter))
    seconds = [ops[o].seconds * r if o >= 0 else 0.0 for o, r in zip(op, runs, strict=True)]
    work = sum(s * ops[o].busy for s, o in zip(seconds, op, strict=True) if o >= 0)
    assert found.makespan >= max(critical(inputs, seconds), work / cores) - 1e-9


@settings(deadline=None, max_examples=300)
@given(
    corun_cases(),
    st.integers(1, 8),
    st.booleans(),
    st.sampled_from([0.0, 0.125]),
    st.sampled_from([1.0, 1.25]),
)
def test_corun_gives_the_oracle_s_timeline(case, inter, hyperthreads, overhead, crowding) -> None:
    there, ops, (inputs, op, runs) = case
    found = tasks(inputs, op, runs).corun(
        ops,
        there,
        inter=inter,
        overhead=overhead,
        crowding=crowding,
        hyperthreads=hyperthreads,
        with_cores=True,
    )
    expected = CorunOracle(
        inputs,
        op,
        runs,
        inter,
        overhead,
        ops=ops,
        machine=there,
        crowding=crowding,
        hyperthreads=hyperthreads,
    ).run()
    same(found, expected)
    assert list(found.cores) == list(expected.cores)
    assert found.second == expected.second


@settings(deadline=None, max_examples=300)
@given(corun_cases(), st.integers(1, 40), st.booleans())
def test_corun_properties(case, inter, hyperthreads) -> None:
    there, ops, (inputs, op, runs) = case
    found = tasks(inputs, op, runs).corun(
        ops, there, inter=inter, hyperthreads=hyperthreads, with_cores=True
    )
    inputs_first(found, inputs)
    # nothing starves: every task ended
    assert all(math.isfinite(e) and e >= s for s, e in zip(found.start, found.end, strict=True))
    admitted = [
        t
        for t in range(len(inputs))
        if op[t] >= 0
        and runs[t] > 0
        and ops[op[t]].admitted
        and not ops[op[t]].placed
        and not ops[op[t]].detached
        and t not in found.second
    ]
    for i, a in enumerate(admitted):
        for b in admitted[:i]:
            apart = found.end[a] <= found.start[b] + 1e-12 or found.end[b] <= found.start[a] + 1e-12
            assert apart or not set(found.cores[a]) & set(found.cores[b])
    # the fastest way any op may run bounds the timeline from below
    fastest = [
        0.0
        if o < 0
        else r
        * min([ops[o].serial, ops[o].choice.seconds, *(c.seconds for c in ops[o].candidates)])
        for o, r in zip(op, runs, strict=True)
    ]
    assert found.makespan >= critical(inputs, fastest) - 1e-9
    held = sum((found.end[t] - found.start[t]) * len(found.cores[t]) for t in admitted)
    assert found.makespan * len(there.cores) >= held - 1e-6


def critical(inputs: list[list[int]], seconds: list[float]) -> float:
    finish: list[float] = []
    for before, own in zip(inputs, seconds, strict=True):
        finish.append(own + max((finish[b] for b in before), default=0.0))
    return max(finish)


def test_a_cycle_is_told() -> None:
    with pytest.raises(ValueError, match="2 tasks wait for each other"):
        tasks([[1], [0], []], [-1, -1, -1], None).fifo(CoreSet([], cores=1, inter=1))


def test_mean_ops_in_flight_is_sampled_at_each_event() -> None:
    # two ops start together (2 in flight, twice), one ends (1), the other ends (0)
    ops = [FifoWork(1.0, 1.0, 1), FifoWork(2.0, 1.0, 1)]
    assert tasks([[], []], [0, 1], None).fifo(CoreSet(ops, cores=2, inter=2)).corunning == 1.25


def test_ops_that_follow_one_another_are_one_in_flight() -> None:
    ops = [FifoWork(1.0, 1.0, 1)]
    found = tasks([[], [0], [1]], [0, 0, 0], None).fifo(CoreSet(ops, cores=1, inter=1))
    assert found.corunning == pytest.approx(5 / 6)  # all but the last end


def test_an_empty_graph_takes_no_time() -> None:
    assert tasks([], [], None).fifo(CoreSet([], cores=1, inter=1)).makespan == 0.0
