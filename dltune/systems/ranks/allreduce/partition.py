"""SCP: cores of each local rank for its background thread, helpers, computing and input.

Section 6.3.3 of the thesis gives each component separate cores, and names the price itself: a core
kept for a thread that is idle most of the time is lost to computing. So each rank first gets its
part of the node, whole tiles if possible. Within that part a component gets separate cores only
where this makes the predicted step shorter; else it shares. A rank with one core shares it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from dltune.base.formatting import counted
from dltune.job.rank_layout import Rank, rank_cores
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Uniform
from dltune.systems.ranks.allreduce.model import Model, Setting
from dltune.systems.ranks.allreduce.section import RankCores
from dltune.systems.ranks.simulation.job import Pool
from dltune.systems.ranks.simulation.method import ORIGINAL, Method

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
class Partition:
    cores: tuple[RankCores, ...]
    split: Split
    setting: Setting
    method: Method
    reasons: tuple[str, ...]


def partition(
    model: Model,
    machine: Machine,
    threads: Uniform | None,
    base: Setting,
    how: Method = ORIGINAL,
) -> Partition:
    """The split that is predicted fastest.

    `threads`: those of the main plan, if it has any. `base`, `how`: what else is planned so far.
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
    return Partition(
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
