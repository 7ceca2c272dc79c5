"""Measurements of a job for a planner: its size, settings, needs, costs, and calls.

They come from horovod reports and from the job's captured graphs.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dltune.base.errors import UsageError
from dltune.schemas import graph
from dltune.schemas.machine import Machine
from dltune.schemas.profile import (
    Node,
    Op,
    Profile,
    Step,
)
from dltune.systems.ranks.allreduce.section import (
    AllreducePlan,
    Controller,
    Knobs,
    RankCores,
    Sleeps,
)
from dltune.systems.ranks.horovod.schema import Distribution, Horovod, Rank, Role, Timeline
from dltune.systems.ranks.simulation.job import GLOO, MPI, Network, Quantiles, Waiting, constant

# Horovod 0.28's own values (operations.cc)
DEFAULTS = Knobs(cycle_time=1e-3, fusion_threshold=128 << 20, cache_capacity=1024)
# Two ranks of one machine, through its loopback interface and through shared memory, from
# timelines of the bundled job (docs/explanation/plan-allreduce.md).
NETWORKS: dict[Controller, Network] = {"gloo": Network(160e-6, 1.1e9), "mpi": Network(1e-6, 2.7e9)}
# A sleeping thread's wake-up while a core is free: the timer slack of 50 us, and the switch.
WAKE = 60e-6
# CPU seconds of a background thread's cycle, when the report does not have them
CYCLE, LONGEST_CYCLE = 20e-6, 500e-6
# MPI yields its core at each poll: it then gets only the time that nobody else wants, and the
# switches.
YIELDING = Waiting(0.15, 1.0, wakes=False)

_OWN: dict[Controller, Waiting] = {"gloo": GLOO, "mpi": MPI}


@dataclass(frozen=True)
class Need:
    """Cores that one rank's threads kept busy, of the rank that needed most, by component.

    `wait`: of the background thread, seconds per second in which it could have run but another
    thread had its core (None: not known).
    """

    background: float
    helpers: float
    compute: float
    input: float
    wait: float | None


@dataclass(frozen=True)
class Observed:
    """`ranks` in all and `local` on a node; `knobs` under which the job ran. `bound`: to how many
    CPUs the launcher had bound each rank then (None: to none in particular). `step`: the median
    seconds of a step then (None: the report has no timeline).

    These are the facts that a planner takes from a horovod report: the job's size and settings,
    needs, and costs. Where a report lacks something, `assumed` lists the value used instead.
    """

    ranks: int
    local: int
    controller: Controller
    knobs: Knobs
    need: Need
    network: Network
    waiting: Waiting
    wake: Quantiles
    wake_busy: Quantiles
    cycle_seconds: float
    bound: int | None
    step: float | None
    assumed: tuple[str, ...]


def basis(
    profile: Profile,
    report: Horovod | None,
    path: Path | None,
    *,
    ranks: int | None,
    local: int | None,
    controller: Controller | None,
) -> Observed:
    """Return the known facts about the job, checked against each other; a section is decided from
    them.

    `ranks`, `local` and `controller` are the user's requests. Raises UsageError when the report is
    of another job than requested or of another machine than the profile, or when there is neither a
    report nor a size.
    """
    if report is None:
        if ranks is None or controller is None:
            raise UsageError(
                "without a report, --ranks and --controller must be given",
                remedy="give a report, or add --ranks N --controller mpi|gloo",
            )
        local = ranks if local is None else local
        if local > ranks:
            raise UsageError(
                f"--local {local}: a node cannot have more ranks than the job's {ranks}",
                remedy=f"use --local {ranks} or less",
            )
        return unobserved(ranks, local, controller)
    found = observed(report)
    if report.machine != profile.machine.fingerprint:
        raise UsageError(
            f"{path} was made on {report.machine_name}, the profile on {profile.machine.name} "
            f"({len(profile.machine.cores)} cores): not the same machine, or other allowed cores",
            remedy="make both on one machine, with the same cores allowed",
        )
    locals_ = {rank.local_size for rank in report.ranks}
    if len(locals_) > 1:
        raise UsageError(
            f"{path}: nodes have different numbers of ranks, "
            + " and ".join(map(str, sorted(locals_))),
            remedy="run the same number of ranks on each node",
        )
    if ranks is not None and ranks != found.ranks:
        raise UsageError(
            f"--ranks {ranks}: {path} is of a job of {found.ranks} ranks",
            remedy=f"report on a job of {ranks} ranks, or leave out --ranks",
        )
    if local is not None and local != found.local:
        more = "more" if local > found.local else "fewer"
        raise UsageError(
            f"--local {local}: {more} than the {found.local} ranks of a node in {path}",
            remedy=f"report on a job with {local} ranks a node, or leave out --local",
        )
    if controller is not None and controller != found.controller:
        raise UsageError(
            f"--controller {controller}: {path} is of a job with {found.controller}",
            remedy=f"report on a job with {controller}, or leave out --controller",
        )
    return found


def observed(report: Horovod) -> Observed:
    """Return the facts of a report. Raises UsageError when it has no rank, or does not show which
    resources the job used."""
    if not report.ranks:
        raise UsageError(
            "the report has no rank: no process of the job initialised Horovod",
            remedy="report again: dltune horovod-report -o report.json -- horovodrun -np 2 ...",
        )
    if any(rank.pytorch for rank in report.ranks):
        raise UsageError(
            "the report is of PyTorch DDP ranks; this planner is for Horovod",
            remedy="plan the gradient buckets of DDP from a profile of one rank: "
            "dltune plan buckets PROFILE",
        )
    controllers = {rank.controller for rank in report.ranks} - {None}
    if report.timeline and not controllers:
        controllers = {report.timeline.controller} - {None}
    if len(controllers) != 1:
        raise UsageError(
            "the report does not say whether the job used MPI or gloo"
            if not controllers
            else "some ranks of the report use MPI, others gloo",
            remedy="report again on the whole job: dltune horovod-report -- horovodrun ...",
        )
    controller = controllers.pop()
    assert controller is not None
    first = report.ranks[0]
    assumed: list[str] = []
    need = _need(report.ranks)
    network = _network(report.timeline, first.size)
    if network is None:
        network = NETWORKS[controller]
        assumed.append(
            "transfer times of a typical single machine are assumed: the report has no timeline, "
            "or too few transfers in it"
        )
    free, busy = _wakes(report.ranks, need)
    if busy is None:
        busy = free
        assumed.append(
            "no wake-up of a background thread was measured: each is assumed to find a free core"
        )
    return Observed(
        ranks=first.size,
        local=max(rank.local_size for rank in report.ranks),
        controller=controller,
        knobs=knobs(first),
        need=need,
        network=network,
        waiting=YIELDING if controller == "mpi" and yields(first) else _OWN[controller],
        wake=free,
        wake_busy=busy,
        cycle_seconds=_cycle(report, controller),
        bound=min(len(r.cpus) for r in report.ranks)
        if all(r.bound for r in report.ranks)
        else None,
        step=report.timeline.step.median if report.timeline and report.timeline.step else None,
        assumed=tuple(assumed),
    )


def unobserved(ranks: int, local: int, controller: Controller) -> Observed:
    """Return the assumptions about a job without a report."""
    network = NETWORKS[controller]
    if ranks > local:
        network = dataclasses.replace(network, algorithm="tree")
    return Observed(
        ranks=ranks,
        local=local,
        controller=controller,
        knobs=DEFAULTS,
        need=Need(0.0, 0.0, 0.0, 0.0, None),
        network=network,
        waiting=_OWN[controller],
        wake=constant(WAKE),
        wake_busy=constant(WAKE),
        cycle_seconds=CYCLE,
        bound=None,
        step=None,
        assumed=(
            "no report: default settings of Horovod, transfer times and wake-up times are assumed",
        ),
    )


def knobs(rank: Rank) -> Knobs:
    """Horovod's settings under which a rank ran."""

    def number(name: str, default: float) -> float:
        try:
            return max(0.0, float(rank.settings[name]))
        except (KeyError, ValueError):
            return default

    return Knobs(
        number("HOROVOD_CYCLE_TIME", DEFAULTS.cycle_time * 1e3) * 1e-3,
        int(number("HOROVOD_FUSION_THRESHOLD", DEFAULTS.fusion_threshold)),
        int(number("HOROVOD_CACHE_CAPACITY", DEFAULTS.cache_capacity)),
    )


def yields(rank: Rank) -> bool:
    """True if the settings make Open MPI give its core away while it waits."""
    told = rank.settings.get("OMPI_MCA_mpi_yield_when_idle", "")
    return told.strip().lower() in ("1", "true", "yes", "enabled")


def _need(ranks: Sequence[Rank]) -> Need:
    def cpu(rank: Rank, *roles: Role) -> float:
        return sum(thread.cpu for thread in rank.threads if thread.role in roles)

    waits = [
        thread.wait
        for rank in ranks
        for thread in rank.threads
        if thread.role == "background" and thread.wait is not None
    ]
    return Need(
        background=max(cpu(rank, "background") for rank in ranks),
        helpers=max(cpu(rank, "helper") for rank in ranks),
        compute=max(cpu(rank, "compute", "python", "other") for rank in ranks),
        input=max(cpu(rank, "input") for rank in ranks),
        wait=max(waits, default=None),
    )


def _network(timeline: Timeline | None, ranks: int) -> Network | None:
    """Return latency and bandwidth of a ring in which a collective of these ranks has the measured
    cost."""
    if timeline is None or timeline.cost is None or ranks < 2:
        return None
    found = timeline.cost
    return Network(
        latency=found.latency / (2 * (ranks - 1)),
        bandwidth=2 * (ranks - 1) / ranks / max(found.per_byte, 1e-12),
    )


def _wakes(ranks: Sequence[Rank], need: Need) -> tuple[Quantiles, Quantiles | None]:
    """Return the wake-up delays of a background thread that finds a core free, and of one that does
    not."""
    late = [r.cycles.oversleep for r in ranks if r.cycles and r.cycles.oversleep]
    worst = max((d for d in late if d.median is not None), key=_median, default=None)
    if worst is not None:
        free = constant(min(WAKE, _median(worst)))
        return free, _quantiles(worst)
    wakes = [
        thread.voluntary
        for rank in ranks
        for thread in rank.threads
        if thread.role == "background" and thread.voluntary > 0
    ]
    if need.wait is None or not wakes:
        return constant(WAKE), None
    # memoryless: the mean is known, and who waits longer has no more reason to be next
    mean = need.wait / min(wakes)
    points = ((0.0, 0.0), (0.5, 0.69 * mean), (0.9, 2.3 * mean), (0.99, 4.6 * mean))
    return constant(WAKE), Quantiles((*points, (1.0, 6.9 * mean)))


def _median(found: Distribution) -> float:
    assert found.median is not None
    return found.median


def _quantiles(found: Distribution) -> Quantiles:
    values = (0.0, found.median or 0.0, found.p95 or 0.0, found.p99 or 0.0, found.max or 0.0)
    rising = itertools.accumulate(values, max)
    return Quantiles(tuple(zip((0.0, 0.5, 0.95, 0.99, 1.0), rising, strict=True)))


def _cycle(report: Horovod, controller: Controller) -> float:
    """CPU seconds of a cycle. A thread that spins in MPI has more than its own work, and only a
    timeline has every cycle."""
    cycles = report.timeline.cycles if report.timeline else None
    if controller == "mpi" or cycles is None or cycles.rate <= 0:
        return CYCLE
    return min(LONGEST_CYCLE, _need(report.ranks).background / cycles.rate)


@dataclass(frozen=True)
class Measured:
    """A setting that a job ran under. `seconds` of a step, by the report's timeline. `bound`: the
    CPUs of each local rank of the first node, if the launcher had bound them."""

    path: Path
    seconds: float
    knobs: Knobs
    yields: bool
    bound: tuple[tuple[int, ...], ...] | None


def measured(reports: Sequence[tuple[Path, Horovod]], report: Horovod) -> list[Measured]:
    """The settings of the reports, fastest first.

    Raises UsageError when one is not of the job of `report`, or has no timeline.

    From reports of one job under several settings follows which of them was fastest.
    """
    found = []
    for path, other in reports:
        if not other.ranks or other.ranks[0].size != report.ranks[0].size:
            raise UsageError(
                f"--measured {path}: its job had {other.ranks[0].size if other.ranks else 0} "
                f"ranks, the job of the report has {report.ranks[0].size}",
                remedy="report on the job with as many ranks",
            )
        if other.machine != report.machine:
            raise UsageError(
                f"--measured {path} was made on another machine, {other.machine_name}",
                remedy="make all reports on one machine",
            )
        seconds = step(path, other)
        first = other.ranks[0]
        yielding = first.controller == "mpi" and yields(first)
        found.append(Measured(path, seconds, knobs(first), yielding, _bound(other)))
    return sorted(found, key=lambda one: one.seconds)


def step(path: Path, report: Horovod) -> float:
    """Return the median seconds of a step. Raises UsageError when the report has no step times."""
    found = report.timeline.step if report.timeline else None
    if found is None or found.median is None:
        raise UsageError(
            f"--measured {path}: the report has no step times, because it has no timeline or only "
            "a short one",
            remedy="report again with a timeline: dltune horovod-report --timeline FILE -- ...",
        )
    return found.median


def _bound(report: Horovod) -> tuple[tuple[int, ...], ...] | None:
    here = [rank for rank in report.ranks if rank.host == report.ranks[0].host]
    if not all(rank.bound for rank in here):
        return None
    return tuple(rank.cpus for rank in sorted(here, key=lambda rank: rank.local_rank))


def settled(
    section: AllreducePlan, found: Sequence[Measured], methods: Collection[str], machine: Machine
) -> AllreducePlan:
    """Return the section with the fastest measured setting in place of the predicted setting.

    `methods`: those that the plan can decide. Sleeps that were predicted to help give way to the
    measured result (rests stay when ranks yield), and so do cores where ranks were measured both
    bound and not.
    """
    best = found[0]
    parts: dict[str, Any] = {"reasons": (*section.reasons, _told(found, section.controller))}
    if "knobs" in methods:
        parts["knobs"] = best.knobs
    if "yield" in methods:
        rest = best.yields and section.sleeps and section.sleeps.rest
        parts |= {
            "yield_when_idle": best.yields,
            "sleeps": Sleeps(None, None, rest) if rest else None,
        }
    if "core-partition" in methods and len({one.bound is None for one in found}) == 2:
        parts["cores"] = best.bound and tuple(_cores(cpus, machine) for cpus in best.bound)
    return msgspec.structs.replace(section, **parts)


def _cores(cpus: Collection[int], machine: Machine) -> RankCores:
    mine = tuple(k for k, core in enumerate(machine.cores) if set(core.cpus) & set(cpus))
    return RankCores(mine, mine, mine, mine)


def _told(found: Sequence[Measured], controller: Controller) -> str:
    """All of them in a sentence."""
    ways = "; ".join(
        f"{one.seconds * 1e3:.1f} ms with cycle time {one.knobs.cycle_time * 1e3:g} ms, fusion "
        f"threshold {one.knobs.fusion_threshold >> 20} MiB"
        + ((", yielding" if one.yields else ", spinning") if controller == "mpi" else "")
        + (", bound to cores" if one.bound else "")
        for one in found
    )
    return f"the plan takes the fastest measured setting; measured steps: {ways}"


SINGLE, GROUPED = "HorovodAllreduce", "HorovodGroupedAllreduce"
_PLACE = re.compile(r"(?P<scope>.*?_Allreduce(?:_\d+)?)/cond(?:_(?P<number>\d+))?/")
# TensorFlow's names in a kernel's key, and those of its Python
_DTYPES = {"float": "float32", "half": "float16", "double": "float64"}


@dataclass(frozen=True)
class Gradient:
    """`node`: its allreduce among the step's nodes. `name`: as Horovod calls it. Size in bytes."""

    node: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class Call:
    """A list of dense gradients that step `step` of the profile hands to Horovod, in its order."""

    step: int
    scope: str
    gradients: tuple[Gradient, ...]

    @functools.cached_property
    def places(self) -> dict[int, int]:
        """By node, the place of its gradient in the list."""
        return {gradient.node: place for place, gradient in enumerate(self.gradients)}

    @property
    def bytes(self) -> int:
        return sum(gradient.bytes for gradient in self.gradients)


def calls(profile: Profile) -> tuple[Call, ...]:
    """Return all calls of the profile's steps.

    Raises UsageError when there is none, when the job groups its gradients itself, or when the
    profile does not show which gradient an allreduce is for.

    The calls that reduce gradients are recovered from the job's captured graphs. Horovod's tape and
    optimizer wrap each gradient's allreduce into a separate conditional ("is there more than one
    rank?"), made in the order of the list that they receive. TensorFlow numbers these conditionals
    within the call's name scope (`DistributedGradientTape_Allreduce/cond_3/...`), so the number
    gives an op its place in the list, whatever shapes the gradients have.
    """
    found: list[Call] = []
    kinds: collections.Counter[str] = collections.Counter()
    for index, step in enumerate(profile.steps):
        kinds.update(node.type for node in step.nodes if node.type.startswith("Horovod"))
        found += _of_step(index, step, profile.ops)
    if found:
        return tuple(found)
    if kinds[GROUPED]:
        raise UsageError(
            f"the profiled job groups its gradients itself ({kinds[GROUPED]} grouped allreduces): "
            "dltune cannot change their order",
            remedy="profile the job without groups (and not under a plan that has bins)",
        )
    if not kinds:
        raise UsageError(
            "this profile has no Horovod operations: the job did not reduce its gradients",
            remedy="profile the job with two ranks or more: dltune profile -- horovodrun -np 2 ...",
        )
    raise UsageError(
        "none of the profile's Horovod operations reduces a list of gradients; the profile has "
        + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(4)),
        remedy="reduce gradients with hvd.DistributedGradientTape or hvd.DistributedOptimizer",
    )


def _of_step(index: int, step: Step, ops: tuple[Op, ...]) -> list[Call]:
    scopes: dict[str, dict[int, Gradient]] = {}
    others: dict[str, set[int]] = collections.defaultdict(set)  # sparse gradients travel otherwise
    for position, node in enumerate(step.nodes):
        match = _PLACE.match(node.name)
        if match is None or not node.type.startswith("Horovod"):
            continue
        place = int(match["number"] or 0)
        if node.type != SINGLE:
            others[match["scope"]].add(place)
            continue
        members = scopes.setdefault(match["scope"], {})
        if place in members:
            raise UsageError(
                f"step {step.name}: {match['scope']} reduces gradient {place} twice: the "
                "allreduces of the graph cannot be matched to gradients",
                remedy="reduce each gradient once in a step",
            )
        members[place] = _gradient(position, node, step, ops)
    for scope, members in scopes.items():
        known = others[scope] | set(members)
        if missing := set(range(max(known))) - known:
            raise UsageError(
                f"step {step.name}: {scope} reduces gradients up to number {max(known)}, but "
                f"number {min(missing)} is not in the graph: the allreduces of the graph cannot be "
                "matched to gradients",
                remedy="reduce all gradients of the list in the profiled step",
            )
    return [
        Call(index, scope, tuple(members[place] for place in sorted(members)))
        for scope, members in scopes.items()
    ]


def _gradient(position: int, node: Node, step: Step, ops: tuple[Op, ...]) -> Gradient:
    op = None if node.op is None else ops[node.op]
    if op is None or not op.inputs:
        raise UsageError(
            f"step {step.name}: {node.name} did not run in the profiled steps: the shape of its "
            "gradient is unknown",
            remedy="profile the job with two ranks or more",
        )
    tensor = graph.parse_key(op.key).inputs[0]
    return Gradient(
        node=position,
        name=node.name.rpartition("/")[2].removeprefix(SINGLE + "_"),
        dtype=_DTYPES.get(tensor.dtype, tensor.dtype),
        shape=tensor.shape,
        bytes=tensor.bytes,
    )
