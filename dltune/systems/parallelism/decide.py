"""From a network and devices to a strategy, compared with others.

`encoded` and `decoded` turn a strategy into its form in a plan, and back.
"""

from __future__ import annotations

import functools
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from dltune.base.documents import digest
from dltune.base.errors import UsageError
from dltune.systems.parallelism.inputs import Given, digests, undivided
from dltune.systems.parallelism.model import bound
from dltune.systems.parallelism.model.engine import Engine, workers
from dltune.systems.parallelism.model.problem import (
    REPLICA,
    Configuration,
    Costs,
    Problem,
    Space,
    Strategy,
    mesh,
    problem,
    soap,
)
from dltune.systems.parallelism.model.search import data_parallel, expert, least_sum, search, single
from dltune.systems.parallelism.schemas.operators import MOST_DIMENSIONS, Operator, OperatorTimes
from dltune.systems.parallelism.schemas.strategy import (
    ALL_CORES,
    ONE_PROCESS,
    Baseline,
    Consumer,
    Divided,
    Parallelism,
    Times,
)
from dltune.systems.parallelism.schemas.topology import Device, Topology


def encoded(problem: Problem, strategy: Strategy, shape: Sequence[int]) -> Iterator[Divided]:
    """Each operator; `shape`: of the mesh, empty where there is none."""
    devices: dict[Configuration, tuple[int, ...]] = {}
    for number, operator in enumerate(problem.graph.operators):
        chosen = problem.configuration(strategy, number)
        if chosen not in devices:
            devices[chosen] = tuple(chosen.devices(problem.devices))
        weights = operator.weights
        yield Divided(
            name=operator.name,
            type=operator.type,
            dimensions=tuple(dimension.name for dimension in operator.dimensions),
            degrees=chosen.degrees[: len(operator.dimensions)],
            replicas=chosen.replicas,
            devices=devices[chosen],
            parameter=operator.parameter,
            weights="" if weights is None else problem.graph.weights[weights].name,
            axes=axes(chosen, shape),
            block=operator.block,
        )


def axes(chosen: Configuration, shape: Sequence[int]) -> tuple[int | None, ...]:
    """For each axis of a mesh the dimension that it divides, None where its devices compute the
    same; of a configuration on such a mesh."""
    sizes = (*chosen.degrees, chosen.replicas)
    divided = [axis for axis in chosen.order if sizes[axis] > 1]
    found: list[int | None] = []
    left = 1
    for size in shape:
        if left == 1:  # an axis divides one dimension; several neighbours can divide it
            axis = divided.pop(0)
            left = sizes[axis]
        left //= size
        found.append(None if axis == REPLICA else axis)
    return tuple(found)


def decoded(section: Parallelism, problem: Problem) -> Strategy:
    """Return the strategy, of the same network and devices. Raises UsageError when an operator is
    divided as none of its configurations has it."""
    operators = {one.name: one for one in section.operators}
    places: dict[tuple[object, ...], int | None] = {}
    strategy = []
    for operator, catalog in zip(problem.graph.operators, problem.catalogs, strict=True):
        one = operators.get(operator.name)
        key = (id(catalog), *((one.degrees, one.replicas, one.devices) if one else ()))
        if key not in places:
            places[key] = _place(one, catalog, problem.devices) if one else None
        place = places[key]
        if place is None:
            raise UsageError(_refused(operator), remedy="make a new plan")
        strategy.append(place)
    return tuple(strategy)


def _refused(operator: Operator) -> str:
    return (
        f"the plan does not divide the operator {operator.name!r}, or divides it in a way that its "
        "dimensions or the devices do not allow"
    )


def _place(one: Divided, catalog: Sequence[Configuration], count: int) -> int | None:
    degrees = (*one.degrees, *[1] * (MOST_DIMENSIONS - len(one.degrees)))
    alike = (
        place
        for place, configuration in enumerate(catalog)
        if (configuration.degrees, configuration.replicas) == (degrees, one.replicas)
        and configuration.devices(count) == [*one.devices]
    )
    return next(alike, None)


def tied(
    problem: Problem, engine: Engine, strategy: Strategy, shape: Sequence[int]
) -> tuple[Strategy, int]:
    """The strategy on a mesh of this shape, and its nanoseconds. Operators that would divide the
    weights that they share differently all get that configuration with which a step is the
    shortest.

    A mesh keeps a weight in one way, so operators that learn the same weights must divide these
    alike.
    """
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for number, operator in enumerate(problem.graph.operators):
        if operator.weights is not None:
            groups[operator.weights].append(number)
    taken = engine.simulate(strategy)
    for members in groups.values():
        if len({_divided(problem, strategy, number, shape) for number in members}) > 1:
            taken, strategy = min(
                (engine.simulate(changed), changed)
                for changed in _alike(problem, strategy, members)
            )
    return strategy, taken


def _divided(problem: Problem, strategy: Strategy, number: int, shape: Sequence[int]) -> object:
    """Return, for each of the mesh's axes, True if it divides the operator's weights."""
    parameter = problem.graph.operators[number].parameter
    over = axes(problem.configuration(strategy, number), shape)
    return tuple(parameter is not None and axis == parameter for axis in over)


def _alike(problem: Problem, strategy: Strategy, members: Sequence[int]) -> list[Strategy]:
    """Return the strategies with each configuration that all members can have; all devices
    computing the same is one."""
    places = [
        {configuration: place for place, configuration in enumerate(problem.catalogs[number])}
        for number in members
    ]
    found = []
    for configuration in places[0]:
        if all(configuration in one for one in places):
            changed = list(strategy)
            for number, one in zip(members, places, strict=True):
                changed[number] = one[configuration]
            found.append(tuple(changed))
    return found


BUDGET = 30.0  # seconds of a decision, where nothing else ends it
# seconds that the bound can take, and its part of a budget in seconds
BOUND_SECONDS = 10.0
BOUND_SHARE = 0.25
LEAST_SEARCH = 0.05  # seconds, where the strategies to begin with took the whole budget
NANOSECONDS = 1e9
# as `inject/_dltune_torch_distribution.py` divides them
_LEARNING_IN_TORCH = ("dense", "conv", "embedding", "batch_norm")


@dataclass(frozen=True)
class Effort:
    """The limits of a decision: a search of so many `proposals`, else so many `seconds` for all,
    from the strategies that the search begins with to the bound; on so many `processes` here, or
    on the workers of a dask `scheduler`."""

    proposals: int | None = None
    seconds: float = BUDGET
    seed: int = 0
    processes: int = 1
    scheduler: str | None = None


@dataclass(frozen=True)
class Decided:
    """`failure`: why a proof of the bound ended early, a sentence."""

    section: Parallelism
    failure: str | None


def decide(
    given: Given,
    topology: Topology,
    named: str,
    consumer: Consumer | None,
    shape: Sequence[int],
    effort: Effort,
) -> Decided:
    """Return the decision. `named`: name of the topology. `shape`: of the mesh, for a consumer.
    Raises UsageError when no configuration fits an operator, or devices have no path between
    them."""
    ends = time.monotonic() + effort.seconds
    reserve = min(BOUND_SECONDS, BOUND_SHARE * effort.seconds)
    graph = given.graph
    whole = posed(given, topology, shape, consumer)
    engine = Engine(whole)
    starts = {
        "data parallel": data_parallel(whole),
        "expert": expert(whole),
        "single device": single(whole),
        "dynamic programming": least_sum(whole),
    }
    if consumer:
        starts = {name: tied(whole, engine, one, shape)[0] for name, one in starts.items()}
    with workers(engine, effort.processes, effort.scheduler) as there:
        found = search(
            whole,
            starts,
            there,
            seed=effort.seed,
            proposals=effort.proposals,
            seconds=0.0
            if effort.proposals
            else max(LEAST_SEARCH, ends - reserve - time.monotonic()),
        )
    chosen, shortest = found.strategy, found.time
    if consumer:
        # tied, the shortest strategy that was found can be longer than one that it began with
        chosen, shortest = min(
            (tied(whole, engine, one, shape) for one in (chosen, *starts.values())),
            key=lambda one: one[1],
        )
    own = measure("", engine, chosen)
    rest = BOUND_SECONDS
    if effort.proposals is None:
        rest = min(rest, ends - time.monotonic())
    least = bound.bound(whole, shortest, rest)
    section = Parallelism(
        network=given.name or graph.name,
        topology=named,
        digests=digests(given, topology),
        devices=tuple(device.name for device in topology.devices),
        mesh=tuple(shape),
        operators=tuple(encoded(whole, chosen, shape)),
        seconds=own.seconds,
        compute=own.compute,
        bytes=own.bytes,
        baselines=(*_baselines(engine, starts), *(rivals(given, topology) if consumer else ())),
        proposals=found.proposals,
        searched=found.seconds,
        measured=given.timed(topology),
        batch=given.batch,
        bound=least.value_ns / NANOSECONDS,
        proof=least.proven_by,
        consumer=consumer,
        hosts=_hosts(topology) if consumer else (),
        times=_told(given.times),
    )
    return Decided(section, least.failure)


def posed(
    given: Given, topology: Topology, shape: Sequence[int], consumer: Consumer | None
) -> Problem:
    """A consumer's ranks add up gradients of what several parts read by all-reduces."""
    ways = space(topology, shape, consumer)
    costs = given.costs(topology)
    update = given.times.update if given.times else 0.0
    if not consumer:
        return problem(given.graph, topology, ways, costs, update)
    return problem(
        *(given.graph, topology, ways, costs, update),
        all_reduce=topology.all_reduce,
        all_to_all=topology.all_to_all,
    )


def space(topology: Topology, shape: Sequence[int], consumer: Consumer | None) -> Space:
    """Return the divisions that a consumer can express, on a mesh of this shape, in equal parts;
    else all of SOAP."""
    if consumer:
        fits = _divisible_in_torch if consumer == "torch" else _judged_by_xla
        return lambda operator, _: [
            one for one in mesh(operator, shape) if _even(operator, one) and fits(operator, one)
        ]
    hosts = len({device.host for device in topology.devices})
    return functools.partial(soap, hosts=hosts)


def _even(operator: Operator, one: Configuration) -> bool:
    return all(d.size % n == 0 for d, n in zip(operator.dimensions, one.degrees, strict=False))


def _judged_by_xla(operator: Operator, one: Configuration) -> bool:
    """True if XLA on CPUs gets gradients right: not always those of convolutions that are divided
    by height or width over one axis of a mesh, another of which is idle (JAX 0.10.2: docs)."""
    pixels = zip(operator.dimensions[1:], one.degrees[1:], strict=False)
    divided = any(d.kind == "attribute" and n > 1 for d, n in pixels)
    return not (len(operator.dimensions) == 4 and divided and one.replicas > 1)


def _divisible_in_torch(operator: Operator, one: Configuration) -> bool:
    """True if PyTorch's layers can compute their parts by themselves: of images no part needs
    pixels of another part, and only a few kinds of layers can be divided by their weights."""
    at, last = operator.parameter, len(operator.dimensions) - 1
    learns = at is not None and one.degrees[at] > 1
    pixels = last > 2 and any(n > 1 for n in one.degrees[1:last])
    return not pixels and (not learns or operator.type.split()[0] in _LEARNING_IN_TORCH)


def require_mesh(shape: Sequence[int], topology: Topology) -> None:
    """Raises UsageError unless it has as many devices."""
    there = len(topology.devices)
    if math.prod(shape) != there:
        raise UsageError(
            f"the mesh {'x'.join(map(str, shape))} has {math.prod(shape)} devices, but the "
            f"topology has {there}",
            remedy=f"pass a --mesh of {there} devices, or another topology",
        )


def _hosts(topology: Topology) -> tuple[str, ...]:
    """Return the hosts of the devices, where a job is started on several."""
    hosts = tuple(device.host for device in topology.devices)
    return hosts if len(set(hosts)) > 1 else ()


def _told(times: OperatorTimes | None) -> Times | None:
    if times is None:
        return None
    return Times(digest(times), len(times.parts), times.framework, times.cores)


def rivals(given: Given, topology: Topology) -> Iterator[Baseline]:
    """Yield the steps of one process that has the whole network, without a plan: on the device
    where that takes the shortest, and, where such times are measured, on all cores of a host."""
    by_kind = {device.kind: device for device in topology.devices}
    alone = [_only(topology, (one,)) for one in by_kind.values()]
    costs = given.costs(topology)
    yield min((_whole(ONE_PROCESS, given, one, costs) for one in alone), key=lambda b: b.seconds)
    together = [(one, given.host_costs(one)) for one in alone]
    known = [_whole(ALL_CORES, given, one, found) for one, found in together if found]
    if known and len({device.host for device in topology.devices}) < len(topology.devices):
        yield min(known, key=lambda baseline: baseline.seconds)


def _only(topology: Topology, devices: Sequence[Device]) -> Topology:
    """Return these devices alone, without links."""
    return msgspec.structs.replace(topology, devices=tuple(devices), links=(), switches=())


def _whole(name: str, given: Given, topology: Topology, costs: Costs) -> Baseline:
    update = given.times.update if given.times else 0.0
    engine = Engine(problem(given.graph, topology, undivided, costs, update))
    return measure(name, engine, (0,) * len(given.graph.operators))


def require_faster(section: Parallelism) -> None:
    """Raises UsageError unless the plan's step is predicted to be shorter than that of one process
    without it."""
    alone = [one for one in section.baselines if one.name in (ONE_PROCESS, ALL_CORES)]
    if alone and len(section.devices) == 1:
        raise UsageError(
            "no plan: the topology has one device, over which nothing can be divided",
            remedy="run the job as it is, or plan for several devices",
        )
    best = min(alone, key=lambda one: one.seconds, default=None)
    if best and best.seconds <= section.seconds:
        raise UsageError(
            f"no plan: {best.name} is predicted to take {best.seconds * 1e3:.4g} ms per step, and "
            f"the best division over {len(section.devices)} devices {section.seconds * 1e3:.4g} ms",
            remedy="run the job as it is, or plan for a larger batch or more devices",
        )


def _baselines(engine: Engine, starts: Mapping[str, Strategy]) -> Iterator[Baseline]:
    """Yield the simulated steps of strategies, and which of them are the same. On a mesh, no layer
    can be on its own devices, so that the expert's strategy for a recurrent network is another's
    there."""
    names: dict[Strategy, str] = {}
    for name, strategy in starts.items():
        same = names.setdefault(strategy, name)
        found = measure(name, engine, strategy)
        yield msgspec.structs.replace(found, same="" if same == name else same)


def measure(name: str, engine: Engine, strategy: Strategy) -> Baseline:
    seconds = engine.simulate(strategy) / NANOSECONDS
    totals = engine.totals()
    return Baseline(name, seconds, totals.compute, totals.bytes)
