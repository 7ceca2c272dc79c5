"""Inputs of planning: the network, the devices, and the times of operators' parts.

Networks and devices come from documents, or are published ones known by name.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import msgspec

from dltune.base.documents import digest, schema
from dltune.base.errors import UsageError
from dltune.schemas.machine import Machine
from dltune.schemas.profile import Profile, load
from dltune.systems.parallelism.jax.operator_times import Request
from dltune.systems.parallelism.model import pytorch_operators
from dltune.systems.parallelism.model.problem import (
    Configuration,
    Costs,
    Part,
    Space,
    part,
    roofline,
)
from dltune.systems.parallelism.model.profile_operators import Measured, Seconds, measured
from dltune.systems.parallelism.model.pytorch_operators import called
from dltune.systems.parallelism.schemas import operators, topology
from dltune.systems.parallelism.schemas.operators import (
    Operator,
    Operators,
    OperatorTimes,
    PartTime,
)
from dltune.systems.parallelism.schemas.strategy import Parallelism
from dltune.systems.parallelism.schemas.topology import (
    SCHEMA,
    Device,
    Kind,
    Link,
    Topology,
)


class PartSeconds(Protocol):
    @property
    def forward(self) -> float: ...
    @property
    def backward(self) -> float: ...


@dataclass(frozen=True)
class MeasuredCosts:
    """`times`: of each part that `requests` has; `update`: seconds that a byte of weights takes to
    be updated. Called, it is `problem.Costs`, for devices of one kind.

    Times of parts were measured once for each type with its local shapes (FlexFlow's paper, section
    5).
    """

    graph: Operators
    times: Mapping[Request, PartSeconds]
    update: float

    def __call__(self, operator: Operator, part: Part, _: Kind) -> tuple[float, float]:
        if not operator.inputs:
            return 0.0, 0.0  # the step's data are there
        times = self.times[_request(self.graph, operator, part)]
        return times.forward, times.backward


def measured_costs(graph: Operators, found: OperatorTimes) -> MeasuredCosts:
    """Costs of a document."""
    return MeasuredCosts(graph, by_request(found.parts), found.update)


def by_request(parts: Iterable[PartTime]) -> dict[Request, PartTime]:
    return {Request(one.type, one.inputs, one.output, one.data): one for one in parts}


def requests(graph: Operators, devices: int, space: Space) -> list[Request]:
    """Return all parts into which the configurations of `space` divide operators on so many
    devices, those that are alike once. Operators without inputs (the data that a step receives)
    have none."""
    wanted: dict[Request, None] = {}
    for operator in graph.operators:
        if operator.inputs:
            for degrees in dict.fromkeys(one.degrees for one in space(operator, devices)):
                wanted[_request(graph, operator, part(graph, operator, degrees))] = None
    return [*wanted]


def undivided(_: Operator, __: int) -> list[Configuration]:
    """The configuration of one process that has all of an operator: `problem.Space`."""
    return [Configuration((1, 1, 1, 1))]


def _request(graph: Operators, operator: Operator, largest: Part) -> Request:
    data = not any(graph.operators[read.operator].gradient for read in operator.inputs)
    return Request(operator.type, largest.inputs, largest.output, data)


class Timed:
    """Costs: measured for a kind of device that has the machine's name, modelled elsewhere.

    A part takes its share of the whole operator's time, plus the fixed time of every op. Devices of
    one host have its cores in equal parts: an op on several of them is as much slower than at its
    best as it has fewer, but never slower than alone.

    The times are those of a profiled step's operators, on devices of the profiled machine.
    """

    def __init__(self, measured: Measured, machine: Machine, topology: Topology) -> None:
        operators = measured.operators.operators
        times = zip(measured.forward, measured.backward, strict=True)
        self._times = dict(zip((one.name for one in operators), times, strict=True))
        self._kind = machine.name
        hosts = Counter(one.host for one in topology.devices if one.kind == machine.name)
        self._slower = min(max(hosts.values(), default=1), len(machine.cores))

    def __call__(self, operator: Operator, part: Part, kind: Kind) -> tuple[float, float]:
        if kind.name != self._kind:
            return roofline(operator, part, kind)
        forward, backward = self._times[operator.name]
        return self._of(forward, part, kind), self._of(backward, part, kind)

    def _of(self, seconds: Seconds, part: Part, kind: Kind) -> float:
        whole = min(seconds.alone, seconds.best * self._slower)
        return kind.overhead + part.share * whole if whole else 0.0


@dataclass(frozen=True)
class Given:
    """A network. `name`: of a published network, with its `batch`. `profile`: its source, with
    times `measured` there. `times`: of all parts into which its operators can be divided."""

    graph: Operators
    name: str = ""
    batch: int | None = None
    profile: Profile | None = None
    measured: Measured | None = None
    times: OperatorTimes | None = None

    def costs(self, topology: Topology) -> Costs:
        """Return the costs of its operators on these devices."""
        if self.times is not None:
            return measured_costs(self.graph, self.times)
        if self.profile is None or self.measured is None:
            return roofline
        return Timed(self.measured, self.profile.machine, topology)

    def host_costs(self, device: Topology) -> Costs | None:
        """Return the costs of undivided operators on all cores of the host of a device, which is
        the only one of its topology; None where they are not measured."""
        if self.times is not None:
            lone = replace(self, times=msgspec.structs.replace(self.times, parts=self.times.whole))
            return lone.costs(device) if self.times.whole else None
        return self.costs(device) if self.timed(device) else None

    def timed(self, topology: Topology) -> bool:
        """True if the times are measured for all kinds of the devices."""
        kinds = {device.kind for device in topology.devices}
        if self.times is not None:
            return True
        return self.measured is not None and kinds == {machine(self).name}


def network(named: Path | str, batch: int | None) -> Given:
    """A document's in a file, or the published one of that name. Raises UsageError."""
    if isinstance(named, str):
        return _published(named, batch)
    if batch is not None:
        raise UsageError(
            f"--batch applies only to published networks; the batch size of {named} is fixed",
            remedy="omit --batch",
        )
    kind = schema(named).rpartition("/")[0]
    if kind == "dltune.profile":
        return profiled(load(named))
    return Given(operators.load(named))


def profiled(profile: Profile) -> Given:
    """Return the profile's step with the most time. Raises UsageError where it has no operators."""
    if not profile.steps:
        raise UsageError("the profile contains no steps", remedy="profile a job that trains")
    step = max(profile.steps, key=lambda one: one.share)
    if profile.framework.capabilities.is_eager:
        if profile.calls is None:
            raise UsageError(
                "the profile contains no step that was recorded call by call",
                remedy="profile the job again without torch.compile, whose calls are not recorded",
            )
        graph = called(profile.calls, step.name or "model")
        found = pytorch_operators.measured(profile.calls, graph, profile)
    else:
        found = measured(step, profile.ops)
    return Given(found.operators, profile=profile, measured=found)


def devices(named: Path | str) -> Topology:
    """A document's in a file, or a published cluster, as `p100:16`. Raises UsageError."""
    if isinstance(named, Path):
        return topology.load(named)
    name, _, count = named.partition(":")
    if name.lower() not in CLUSTERS or not re.fullmatch(r"\d{1,4}", count):
        raise UsageError(
            f"{named!r} is neither a file nor a published cluster with a number of devices",
            remedy=f"pass a topology document, or one of {', '.join(CLUSTERS)} with a number of "
            "devices, such as p100:16",
        )
    return CLUSTERS[name.lower()](int(count))


def remarks(given: Given, topology: Topology) -> Iterator[str]:
    """Yield warnings."""
    if given.profile is None or given.measured is None or given.times is not None:
        return
    if given.profile.partial is not None:
        yield f"this profile is partial: {given.profile.partial}"
    if given.measured.uncounted:
        types = ", ".join(given.measured.uncounted)
        yield f"the number of operations is unknown for {types}, and counted as 0"
    if not given.timed(topology):
        yield (
            "the profile's times apply only to devices of the kind "
            f"{given.profile.machine.name!r}, the profiled machine; times of other kinds are "
            "modelled"
        )


def machine(given: Given) -> Machine:
    """Return the machine of the profile; else this machine."""
    if given.profile is not None:
        return given.profile.machine
    from dltune.system import topology

    return topology.local()


def digests(given: Given, cluster: Topology) -> tuple[str, str]:
    return digest(given.graph), digest(cluster)


def again(
    section: Parallelism, documents: Iterable[msgspec.Struct]
) -> tuple[Given, Topology] | None:
    """Return the inputs that a section was planned from, made by its names or found among these
    documents. None when they are not there, or have changed."""
    every = tuple(documents)
    graph, cluster = section.digests
    networks = (one for one in _networks(section, every) if digest(one.graph) == graph)
    clusters = (one for one in _clusters(section, every) if digest(one) == cluster)
    given, found = next(networks, None), next(clusters, None)
    return (given, found) if given and found else None


def _networks(section: Parallelism, documents: Iterable[msgspec.Struct]) -> Iterator[Given]:
    yield from (Given(one) for one in documents if isinstance(one, Operators))
    for one in documents:
        if isinstance(one, Profile):
            with contextlib.suppress(UsageError):  # of another job, which has no operators
                yield profiled(one)
    if section.batch is not None:
        with contextlib.suppress(UsageError):  # of another dltune, whose networks are others
            yield _published(section.network, section.batch)


def _clusters(section: Parallelism, documents: Iterable[msgspec.Struct]) -> Iterator[Topology]:
    yield from (one for one in documents if isinstance(one, Topology))
    with contextlib.suppress(UsageError):  # a document's name
        yield devices(section.topology)


def _published(name: str, batch: int | None) -> Given:
    from dltune.systems.parallelism.networks import NETWORKS

    known = {one.lower(): one for one in NETWORKS}
    if name.lower() not in known:
        raise UsageError(
            f"{name!r} is neither a file nor a published network",
            remedy="pass a profile, an operators document, or one of " + ", ".join(NETWORKS),
        )
    own = known[name.lower()]
    graph = NETWORKS[own]() if batch is None else NETWORKS[own](batch)
    return Given(graph, name=own, batch=_samples(graph) if batch is None else batch)


def _samples(graph: Operators) -> int:
    """The size of its dimension of samples."""
    return max(d.size for one in graph.operators for d in one.dimensions if d.kind == "sample")


# The two clusters that FlexFlow was measured on (its Figure 6), in any number of nodes
GPUS = 4  # of a node

# bytes a second, each direction: lanes x transfers a second x bits of data of those sent
_PCIE = 16 * 8e9 * 128 / 130 / 8
_EDR = 4 * 25.78125e9 * 64 / 66 / 8
_FDR = 4 * 14.0625e9 * 64 / 66 / 8
_NVLINK = 20e9
_ACROSS_BOARDS = 12e9

# seconds, of a link
_NVLINK_LATENCY = 5e-6
_PCIE_LATENCY = 2.5e-6
_INFINIBAND_LATENCY = 1e-6

_OVERHEAD = 5e-6
_ASSUMED = (
    "Assumptions: 5 us for the launch of a kernel; a share of the roofline with which Inception-v3 "
    "trains at {rate} images/s in batches of 64, as in TensorFlow's benchmarks of May 2017."
)
P100 = Kind(
    "P100",
    flops=10.6e12,
    bandwidth=732e9,
    overhead=_OVERHEAD,
    share=0.49,
    source="NVIDIA, Tesla P100 (SXM2) data sheet: 10.6 Tflop/s in 32 bits with boost, 732 GB/s. "
    + _ASSUMED.format(rate=142),
)
K80 = Kind(
    "K80",
    flops=8.74e12 / 2,
    bandwidth=480e9 / 2,
    overhead=_OVERHEAD,
    share=0.26,
    source="NVIDIA, Tesla K80 board specification BD-07317-001, one of its two GPUs: 8.74 Tflop/s "
    "in 32 bits for both with boost (875 MHz; 5.6 at the base clock of 560), 480 GB/s for both. "
    + _ASSUMED.format(rate=30.5),
)
_LATENCIES = (
    "Latencies are assumptions: 5 us for a copy over NVLink, 2.5 us for a PCIe link, 1 us for an "
    "InfiniBand link."
)


def p100(gpus: int = 16) -> Topology:
    """Nodes of four P100, 4 in the paper. Raises UsageError for another number of GPUs than makes
    whole nodes, or than a part of one."""
    devices, hosts = _nodes(gpus, "P100")
    links = []
    for host, own in hosts.items():
        links += [Link(pair, _NVLINK, _NVLINK_LATENCY) for pair in itertools.combinations(own, 2)]
        links += [Link((name, f"{host}/pcie"), _PCIE, _PCIE_LATENCY) for name in own]
        links.append(Link((f"{host}/pcie", "infiniband"), _EDR, _INFINIBAND_LATENCY))
    switches = (*(f"{host}/pcie" for host in hosts), "infiniband")
    return Topology(
        SCHEMA,
        f"{gpus} P100",
        (P100,),
        devices,
        tuple(links),
        switches,
        source="FlexFlow (Jia, Zaharia and Aiken, 2018), section 8.1. Within a node one NVLink "
        "for each pair, 20 GB/s each way (NVIDIA, Tesla P100 whitepaper; a GPU's fourth is left "
        "out). Between nodes EDR InfiniBand: the paper prints 100 GB/s, but EDR has 100 Gbit/s, "
        "12.5 GB/s, which is used; GPUs reach it over PCIe 3.0 with 16 lanes, 15.75 GB/s. "
        + _LATENCIES,
    )


def k80(gpus: int = 64) -> Topology:
    """Nodes of four K80, 16 in the paper: two boards of two GPUs. Raises as `p100`."""
    devices, hosts = _nodes(gpus, "K80")
    links, switches = [], []
    for host, own in hosts.items():
        shared = f"{host}/pcie"
        switches.append(shared)
        for number in range(0, len(own), 2):
            board = f"{host}/board{number // 2}"
            switches.append(board)
            pair = own[number : number + 2]
            links += [Link((name, board), _PCIE, _PCIE_LATENCY) for name in pair]
            links.append(Link((board, shared), _ACROSS_BOARDS, _PCIE_LATENCY))
        links.append(Link((shared, "infiniband"), _FDR, _INFINIBAND_LATENCY))
    return Topology(
        SCHEMA,
        f"{gpus} K80",
        (K80,),
        devices,
        tuple(links),
        (*switches, "infiniband"),
        source="FlexFlow (Jia, Zaharia and Aiken, 2018), section 8.1. Adjacent GPUs over a switch "
        "of PCIe 3.0 with 16 lanes, 15.75 GB/s each way; the others of a node over one that all "
        "share, 12 GB/s for each board, an assumption. Between nodes the paper prints 56 GB/s of "
        "EDR InfiniBand; 56 Gbit/s is FDR, of which 6.8 GB/s are data, which is used. "
        + _LATENCIES,
    )


# each takes a number of GPUs
CLUSTERS: Mapping[str, Callable[[int], Topology]] = {"p100": p100, "k80": k80}


def _nodes(gpus: int, kind: str) -> tuple[tuple[Device, ...], dict[str, list[str]]]:
    """The devices, and their names by host."""
    if gpus < 1 or (gpus > GPUS and gpus % GPUS):
        raise UsageError(
            f"a cluster of {gpus} GPUs is not possible: each node has {GPUS} GPUs",
            remedy=f"use 1 to {GPUS} GPUs, or a multiple of {GPUS}",
        )
    devices = tuple(Device(f"gpu{n}", kind, f"node{n // GPUS}") for n in range(gpus))
    hosts: dict[str, list[str]] = {}
    for device in devices:
        hosts.setdefault(device.host, []).append(device.name)
    return devices, hosts
