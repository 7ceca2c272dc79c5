"""The simulation of ranks as one would write it down: each background thread a generator.

Slow and plain, with the arithmetic of engine.cc in the same order, so that both agree to the bit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from dltune.systems.ranks.simulation.job import Job, Method, Quantiles, Update

NEVER = math.inf
WORD = (1 << 64) - 1


def mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def value(quantiles: Quantiles, u: float) -> float:
    points = quantiles.points
    for (a, low), (b, high) in itertools.pairwise(points):
        if u < b:
            return low + (u - a) / (b - a) * (high - low)
    raise AssertionError(u)


def chance(quantiles: Quantiles, key: int, number: int) -> float:
    bits = mix((key + number * 0x9E3779B97F4A7C15) & WORD)
    return value(quantiles, (bits >> 11) * 2.0**-53)


@dataclass
class Rank:
    key: int
    draws: int = 0
    # computing
    step: int = -1
    phase: int = 0
    computing: bool = False
    updating: bool = False
    updated: int = 0  # how many of the updates that were due, of all steps
    left: float = 0.0
    factor: float = 1.0
    input_left: float = 0.0
    begin: float = 0.0
    ready: float = 0.0
    # the background thread
    level: float = 0.0
    cpu: float = 0.0
    agreed: float = 0.0
    release: float = 0.0
    wake: float = 0.0
    started: float = 0.0
    cycle: float = 0.0
    popped: int = 0
    popped_before: int = 0
    come: bool = False
    resting: bool = False
    at: float = 0.0
    thread: Iterator[float] = field(default_factory=lambda: iter(()))

    def draw(self, quantiles: Quantiles) -> float:
        self.draws += 1
        return chance(quantiles, self.key, self.draws)


@dataclass
class Pool:
    ranks: list[Rank]
    now: float = 0.0
    busy: bool = False


@dataclass
class Told:
    """What is compared, besides what the properties are about."""

    ends: list[float] = field(default_factory=list)
    compute: float = 0.0
    slowest: float = 0.0
    transfer: float = 0.0
    background: float = 0.0
    cycles: int = 0
    empty: int = 0
    batches: int = 0
    sleeps: int = 0
    oversleep: float = 0.0
    worst: float = 0.0
    sent: list[tuple[float, float, tuple[int, ...]]] = field(default_factory=list)
    ready: list[dict[int, float]] = field(default_factory=list)  # per step: tensor, all ranks


class Oracle:
    def __init__(self, job: Job, method: Method, steps: int, warmup: int, seed: int) -> None:
        self.job, self.method, self.warmup, self.last = job, method, warmup, steps + warmup
        self.ranks = [
            Rank(mix((seed + (r + 1) * 0x9E3779B97F4A7C15) & WORD)) for r in range(job.ranks)
        ]
        size = job.pool.ranks
        self.pools = [Pool(self.ranks[i : i + size]) for i in range(0, job.ranks, size)]
        self.phase_of = {t: k for k, phase in enumerate(job.phases) for t in phase.tensors}
        self.step = self.bin = self.since = 0
        self.unsent = set(range(len(job.tensors)))
        self.due: list[tuple[float, Update]] = []
        self.bin_end = -1.0
        self.device = 0.0
        self.told = Told()
        self.before = 0.0

    def run(self) -> Told:
        for rank in self.ranks:
            rank.phase = len(self.job.phases)
            rank.wake = self.job.cycle_time
        while self.step < self.last:
            for pool in self.pools:
                for rank in pool.ranks:
                    rank.come = False
                    rank.thread = self.background(rank, pool)
                    rank.at = next(rank.thread)
                self.follow(pool)
            if self.method.synchronized:
                self.agree()
            else:
                self.send_bin()
        self.told.background = -self.before
        for rank in self.ranks:
            self.told.background += rank.cpu
        return self.told

    # --- one background thread, from where its last cycle was agreed on to the next one ---

    def background(self, rank: Rank, pool: Pool) -> Iterator[float]:
        job = self.job
        popped = cycle = None
        if rank.step >= 0:
            yield rank.agreed
            rank.level = job.waiting.transferring
        yield rank.release
        rank.level = 0.0
        if self.method.synchronized:
            start = rank.release
            if rank.wake > rank.release:
                yield rank.wake
                yield from self.rest(rank, rank.wake)
                start = rank.at + self.oversleep(rank, pool)
            elif self.method.rest and not self.waiting(rank):
                popped, cycle = rank.phase if rank.step == self.step else 0, rank.release
                yield from self.rest(rank, rank.release)
                start = rank.at + self.oversleep(rank, pool)
        elif self.bin_ready(rank):
            start = rank.release
        else:
            yield NEVER  # until the bin's last tensor is ready, which end_phase tells
            start = rank.wake + self.oversleep(rank, pool)
        yield start
        rank.started = start
        rank.cycle = start if cycle is None else cycle
        rank.popped = rank.phase if rank.step == self.step else 0
        if popped is not None:
            rank.popped = popped
        if not self.method.synchronized:
            rank.level = job.waiting.transferring
        elif self.method.between_tests is None:
            rank.level = job.waiting.synchronizing
        rank.cpu += job.cycle_seconds * (1 - rank.level)
        rank.come = True
        yield NEVER

    def rest(self, rank: Rank, since: float) -> Iterator[float]:
        if self.method.rest and not self.waiting(rank):
            rank.resting = True
            yield since + self.method.rest  # or until end_phase tells of a tensor
            rank.resting = False

    def waiting(self, rank: Rank) -> bool:
        if rank.step != self.step:
            return False
        there = {t for t in self.unsent if self.phase_of[t] < rank.phase}
        if self.method.bins is None:
            return bool(there)
        return set(self.method.bins[self.bin]) <= there

    def oversleep(self, rank: Rank, pool: Pool) -> float:
        late = rank.draw(self.job.wake_busy if pool.busy else self.job.wake)
        self.told.sleeps += 1
        self.told.oversleep += late
        self.told.worst = max(self.told.worst, late)
        return late

    def bin_ready(self, rank: Rank) -> bool:
        assert self.method.bins is not None
        needed = max(self.phase_of[t] for t in self.method.bins[self.bin])
        return rank.step == self.step and rank.phase > needed

    # --- the ranks of a pool, between two events ---

    def follow(self, pool: Pool) -> None:
        job, reserved, input_cores = self.job, self.method.reserved, self.method.input_cores
        while True:
            wanted = background = reading = 0.0
            for rank in pool.ranks:
                background += rank.level
                wanted += self.threads(rank)
                if rank.input_left > 0:
                    reading += job.input_threads
            cores = job.pool.cores - reserved - input_cores
            if not reserved:
                wanted += background
            if not input_cores:
                wanted += reading
            pool.busy = background + 1 > reserved if reserved else wanted + 1 > cores
            if all(rank.come for rank in pool.ranks):
                return
            rate = cores / wanted if wanted > cores else 1.0
            reads = rate
            if input_cores:
                reads = input_cores / reading if reading > input_cores else 1.0
            own = rate
            if reserved:
                own = reserved / background if background > reserved else 1.0
            moment = min(self.next(rank, pool.now, rate, reads) for rank in pool.ranks)
            moment = max(moment, pool.now)
            for rank in pool.ranks:
                rank.cpu += (moment - pool.now) * rank.level * own
                self.read(rank, pool.now, moment, reads)
                self.compute(rank, pool.now, moment, rate)
                self.update(rank, moment)
                busy = rank.computing or rank.updating or rank.input_left > 0
                if not busy and rank.begin <= moment:
                    self.start(rank, moment)
                while rank.at <= moment:
                    rank.at = next(rank.thread)
            pool.now = moment

    def threads(self, rank: Rank) -> float:
        if rank.computing:
            return self.job.phases[rank.phase].threads
        return self.due[rank.updated][1].threads if rank.updating else 0.0

    def speed(self, rank: Rank, rate: float) -> float:
        return rate if self.threads(rank) > 0 else 1.0

    def next(self, rank: Rank, now: float, rate: float, reads: float) -> float:
        moments = [rank.at]
        if rank.computing or rank.updating:
            moments.append(now + rank.left / self.speed(rank, rate))
        elif rank.updated < len(self.due):
            moments.append(self.due[rank.updated][0])
        elif not rank.input_left > 0:
            moments.append(rank.begin)
        if rank.input_left > 0:
            moments.append(now + rank.input_left / reads)
        return min(moments)

    def read(self, rank: Rank, now: float, moment: float, rate: float) -> None:
        if rank.input_left > 0:
            if now + rank.input_left / rate <= moment:
                rank.input_left = 0.0
            else:
                rank.input_left -= (moment - now) * rate

    def compute(self, rank: Rank, now: float, moment: float, rate: float) -> None:
        if rank.computing or rank.updating:
            speed = self.speed(rank, rate)
            if now + rank.left / speed > moment:
                rank.left -= (moment - now) * speed
            elif rank.computing:
                self.end_phase(rank, moment)
            else:
                rank.updating = False
                rank.updated += 1

    def update(self, rank: Rank, moment: float) -> None:
        while not (rank.computing or rank.updating) and rank.updated < len(self.due):
            at, one = self.due[rank.updated]
            if at > moment:
                return
            rank.left = one.seconds * rank.factor
            rank.updating = rank.left > 0
            rank.updated += not rank.updating

    def start(self, rank: Rank, moment: float) -> None:
        rank.step += 1
        rank.begin = NEVER
        rank.factor = chance(self.job.jitter, ~rank.key & WORD, rank.step + 1)
        rank.input_left = self.job.input_seconds
        rank.phase, rank.computing = 0, True
        rank.left = self.job.phases[0].seconds * rank.factor
        if not rank.left > 0:
            self.end_phase(rank, moment)

    def end_phase(self, rank: Rank, moment: float) -> None:
        while True:
            if len(self.told.ready) <= rank.step:
                self.told.ready.append({})
            for tensor in self.job.phases[rank.phase].tensors:
                ready = self.told.ready[rank.step]
                ready[tensor] = max(ready.get(tensor, 0.0), moment)
            if rank.phase == max(self.phase_of.values()):
                rank.ready = moment
            rank.phase += 1
            if rank.phase == len(self.job.phases):
                rank.computing = False
                break
            rank.left = self.job.phases[rank.phase].seconds * rank.factor
            if rank.left > 0:
                break
        asleep = not self.method.synchronized and not rank.come and rank.at == NEVER
        if rank.resting and self.waiting(rank):
            rank.at = moment
        if asleep and self.bin_ready(rank):
            rank.wake = moment
            rank.at = moment

    # --- what all ranks do together ---

    def agree(self) -> None:
        job = self.job
        agreed = max(rank.started + job.cycle_seconds for rank in self.ranks)
        common = min(rank.popped for rank in self.ranks)
        cached = self.step > 0 and 0 < len(job.tensors) <= job.cache_capacity
        requests = 0
        for rank in self.ranks:
            new = job.phases[rank.popped_before : rank.popped]
            requests += 0 if cached else sum(len(phase.tensors) for phase in new)
            rank.popped_before = rank.popped
        if job.cache_capacity:
            agreed += job.synchronization
        if not job.cache_capacity or requests:
            agreed += 2 * job.network.few_bytes(job.ranks) + job.request * requests
        for pool in self.pools:
            for rank in pool.ranks:
                come = rank.started + job.cycle_seconds
                if self.method.between_tests is not None:
                    late = rank.draw(job.wake_busy if pool.busy else job.wake)
                    slept = self.method.between_tests + late
                    tests = math.ceil((agreed - come) / slept)
                    rank.agreed = come + tests * slept
                    rank.cpu += tests * job.test
                else:
                    rank.agreed = agreed + self.answer(rank, pool)
        end = max(agreed, *(rank.agreed for rank in self.ranks))
        batches = self.batches(common)
        for tensors in batches:
            end = self.transfer(end, tensors)
        if batches and self.method.bins is not None:
            self.bin += 1
            self.bin_end = end
        self.told.cycles += 1
        self.told.empty += not batches
        for rank in self.ranks:
            rank.release = end if batches and not job.offloaded else rank.agreed
            rank.wake = rank.cycle + job.cycle_time
        if self.method.agree_every:
            self.since += 1
            if self.since == self.method.agree_every:
                self.since = 0
                least = min(max(0.0, rank.wake - rank.release) for rank in self.ranks)
                moment = max(rank.release for rank in self.ranks) + job.network.few_bytes(job.ranks)
                for rank in self.ranks:
                    rank.release, rank.wake = moment, moment + least
        if not self.unsent:
            self.end_step(self.device if job.offloaded else end)

    def answer(self, rank: Rank, pool: Pool) -> float:
        if self.job.answers is None:
            return 0.0
        idle, busy = self.job.answers
        return rank.draw(busy if pool.busy else idle)

    def batches(self, common: int) -> list[list[int]]:
        job = self.job
        there = [t for t in sorted(self.unsent) if self.phase_of[t] < common]
        if self.method.bins is not None:
            # submitted once the one before has come back: not seen by who looks in that moment
            seen = min(rank.started for rank in self.ranks) > self.bin_end
            following = self.method.bins[self.bin]
            return [list(following)] if seen and set(following) <= set(there) else []
        found: list[list[int]] = []
        size = 0.0
        for tensor in there:
            if not found or size + job.tensors[tensor] > job.fusion_threshold:
                found.append([])
                size = 0.0
            found[-1].append(tensor)
            size += job.tensors[tensor]
        return found

    def transfer(self, begin: float, tensors: list[int]) -> float:
        job = self.job
        size = float(sum(job.tensors[t] for t in tensors))
        seconds = job.network.start(job.ranks) + job.network.per_byte(job.ranks) * size
        if len(tensors) > 1:
            seconds += 2 / job.network.copy * size
        if job.offloaded:
            begin = max(begin, self.device)
        else:
            seconds += max(self.answer(rank, pool) for pool in self.pools for rank in pool.ranks)
        self.device = begin + seconds
        for tensor in sorted(tensors):
            self.unsent.remove(tensor)
            self.due += [
                (self.device, one)
                for one in job.updates
                if tensor in one.tensors and not self.unsent & set(one.tensors)
            ]
        self.told.batches += 1
        self.told.transfer += seconds
        self.told.sent.append((begin, self.device, tuple(tensors)))
        return self.device

    def send_bin(self) -> None:
        job = self.job
        assert self.method.bins is not None
        come = max(rank.started + job.cycle_seconds for rank in self.ranks)
        end = self.transfer(come, list(self.method.bins[self.bin]))
        self.told.cycles += 1
        for rank in self.ranks:
            own = rank.started + job.cycle_seconds
            rank.agreed, rank.release = (own, own) if job.offloaded else (come, end)
        self.bin += 1
        if self.bin == len(self.method.bins):
            self.end_step(end)

    def end_step(self, end: float) -> None:
        told = self.told
        before = told.ends[-1] if told.ends else 0.0
        total = slowest = 0.0
        for rank in self.ranks:
            total += rank.ready - before
            slowest = max(slowest, rank.ready - before)
            rank.begin = end
            rank.popped_before = 0
        told.compute += total
        told.slowest += slowest
        told.ends.append(end)
        self.unsent = set(range(len(self.job.tensors)))
        self.bin = 0
        self.step += 1
        if self.step == self.warmup:
            self.told = Told(ends=told.ends, sent=told.sent, ready=told.ready)
            self.told.cycles = 0
            for rank in self.ranks:
                self.before += rank.cpu
