"""A small network with a layer of steps that share weights, small clusters, and a plan of both."""

from __future__ import annotations

import functools

from dltune.base.documents import struct_faults
from dltune.systems.parallelism.decide import Effort, decide
from dltune.systems.parallelism.inputs import Given, requests
from dltune.systems.parallelism.model.problem import soap
from dltune.systems.parallelism.schemas import operators, topology
from dltune.systems.parallelism.schemas.operators import (
    TIMES_SCHEMA,
    Dimension,
    Input,
    Operator,
    Operators,
    OperatorTimes,
    PartTime,
    Region,
    Weights,
)
from dltune.systems.parallelism.schemas.strategy import Consumer, Parallelism
from dltune.systems.parallelism.schemas.topology import (
    Device,
    Kind,
    Link,
    Topology,
)

SAMPLES = Dimension("sample", 16, "sample")


def network(steps: int = 3) -> Operators:
    """Rows of one picture each, a layer of `steps`, and a wide one that reads its last."""
    made = [_operator("data", Dimension("row", 8, "attribute"), gradient=False)]
    for step in range(steps):
        reads = [0, *([step] if step else [])]
        channel = Dimension("channel", 32, "parameter")
        made.append(_operator(f"step{step}", channel, reads, made, weights=0, block="steps"))
    wide = Dimension("channel", 64, "parameter")
    made.append(_operator("wide", wide, [steps], made, weights=1))
    found = Operators(
        operators.SCHEMA, "small", tuple(made), (Weights("w", 2**20), Weights("v", 2**22))
    )
    assert struct_faults("", found) == []
    return found


def cluster(hosts: int = 2, devices: int = 2) -> Topology:
    """Devices of a host have a link, hosts share a slow one."""
    every = [Device(f"d{n}", "fast", f"h{n // devices}") for n in range(hosts * devices)]
    links = [Link((one.name, f"switch {one.host}"), 8e9, 2e-6, shared=True) for one in every] + [
        Link((f"switch h{n}", "between"), 1e9, 1e-5) for n in range(hosts)
    ]
    switches = (*(f"switch h{n}" for n in range(hosts)), "between")
    kinds = (Kind("fast", 1e12, 1e11, 1e-6, 0.5, "a test"),)
    found = Topology(topology.SCHEMA, "small", kinds, tuple(every), tuple(links), switches)
    assert struct_faults("", found) == []
    return found


def times() -> OperatorTimes:
    """Of every part into which the cluster's devices may divide the network."""
    parts = tuple(
        PartTime(one.type, one.inputs, one.output, 1e-5 * sum(one.output), 1e-4, one.data)
        for one in requests(network(), 4, functools.partial(soap, hosts=2))
    )
    found = OperatorTimes(TIMES_SCHEMA, "fast", 2, 1, "JAX 1", 1e-9, parts)
    assert struct_faults("", found) == []
    return found


def section(
    graph: Operators | None = None,
    devices: Topology | None = None,
    *,
    consumer: Consumer | None = None,
    mesh: tuple[int, ...] = (),
    proposals: int = 300,
    seed: int = 0,
) -> Parallelism:
    given = Given(graph or network())
    effort = Effort(proposals, seed=seed)
    return decide(given, devices or cluster(), "small", consumer, mesh, effort).section


def _operator(
    name: str,
    last: Dimension,
    reads: tuple[int, ...] | list[int] = (),
    made: list[Operator] | None = None,
    *,
    weights: int | None = None,
    block: str = "",
    gradient: bool = True,
) -> Operator:
    inputs = tuple(
        Input(read, (Region(1, of=0), Region((made or [])[read].dimensions[1].size)))
        for read in reads
    )
    flops = 1e6 * last.size
    backward = 2 * flops if gradient else 0.0
    return Operator(
        name, "product", (SAMPLES, last), flops, backward, inputs, weights, 4, gradient, block
    )
