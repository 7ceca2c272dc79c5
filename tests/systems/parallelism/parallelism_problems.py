"""Problems so small that every strategy can be simulated, at random."""

from __future__ import annotations

import itertools
from random import Random

from hypothesis import strategies as st

from dltune.base.documents import struct_faults
from dltune.systems.parallelism.model.engine import Engine
from dltune.systems.parallelism.model.problem import (
    Configuration,
    Part,
    Problem,
    Strategy,
    mesh,
    problem,
    soap,
)
from dltune.systems.parallelism.schemas import operators as graphs
from dltune.systems.parallelism.schemas import topology as topologies
from dltune.systems.parallelism.schemas.operators import (
    Dimension,
    Input,
    Operator,
    Operators,
    Region,
    Weights,
)
from dltune.systems.parallelism.schemas.topology import (
    Device,
    Kind,
    Link,
    Topology,
)

MOST = 2000  # strategies
SHAPES = {1: (1,), 2: (2,), 3: (3,), 4: (2, 2), 6: (2, 3)}


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    return random_problem(draw(st.randoms(use_true_random=False)))


def every(given: Problem) -> list[tuple[int, Strategy]]:
    """The nanoseconds of each strategy."""
    engine = Engine(given)
    choices = (range(len(catalog)) for catalog in given.catalogs)
    return [(engine.simulate(strategy), strategy) for strategy in itertools.product(*choices)]


def random_problem(random: Random) -> Problem:
    graph, topology = random_graph(random), random_topology(random)
    assert not struct_faults("", graph)
    assert not struct_faults("", topology)
    left = [MOST]

    def space(operator: Operator, devices: int) -> list[Configuration]:
        """Some of either kind, few enough for all operators together."""
        every = [*soap(operator, devices), *mesh(operator, SHAPES[devices])]
        most = max(1, min(random.randint(1, 6), int(left[0] ** (1 / 3))))
        return random.sample(every, min(most, len(every)))

    def costs(operator: Operator, part: Part, kind: Kind) -> tuple[float, float]:
        return random.randint(0, 60) * 1e-9, random.randint(0, 90) * 1e-9

    given = problem(graph, topology, space, costs, random.choice([0.0, 2e-10]))
    count = 1
    for n, catalog in enumerate(given.catalogs):
        most = max(1, MOST // count)
        if len(catalog) > most:  # its own list: others may keep theirs
            given.catalogs[n] = catalog[:most]  # type: ignore[index]
        count *= len(given.catalogs[n])
    return given


def random_topology(random: Random) -> Topology:
    count = random.choice([1, 2, 2, 3, 4, 4, 4, 6])
    kinds = tuple(Kind(f"k{n}", 1.0, 1.0) for n in range(random.randint(1, 2)))
    hosts = random.randint(1, min(3, count))
    devices = tuple(
        Device(f"d{n}", random.choice(kinds).name, f"h{n * hosts // count}") for n in range(count)
    )

    def link(a: str, b: str) -> Link:
        bandwidth = random.choice([0.5e9, 1e9, 4e9])
        return Link((a, b), bandwidth, random.randint(0, 9) * 1e-9, bool(random.randrange(2)))

    names = [one.name for one in devices]
    if random.randrange(2):  # each pair has a link, or all share a switch
        links, switches = [link(a, b) for a, b in itertools.combinations(names, 2)], ()
    else:
        links, switches = [link(name, "s") for name in names], ("s",)
    overlap = bool(random.randrange(4))
    return Topology(topologies.SCHEMA, "t", kinds, devices, tuple(links), switches, overlap)


def random_graph(random: Random) -> Operators:
    groups = random.randint(0, 2)
    found: list[Operator] = []
    for at in range(random.randint(1, 5)):
        dimensions = [Dimension("s", random.choice([2, 4, 5]), "sample")]
        for n in range(random.randint(0, 2)):
            kind = random.choice(["attribute", "whole"] if n else ["parameter", "attribute"])
            dimensions.append(Dimension(f"d{n}", random.randint(1, 6), kind))  # type: ignore[arg-type]
        inputs = []
        for _ in range(random.choice([0, 1, 1, 1, 2]) if at else 0):
            producer = random.choice([at - 1, random.randrange(at)])
            regions = [_region(random, one, dimensions) for one in found[producer].dimensions]
            inputs.append(Input(producer, tuple(regions)))
        weights = random.randrange(groups) if groups and random.randrange(3) else None
        gradient = bool(random.randrange(5))
        found.append(
            Operator(
                *(f"op{at}", "Any", tuple(dimensions), 1.0, 1.0, tuple(inputs), weights),
                *(random.choice([1, 4]), gradient, random.choice(["", "a", "b"])),
            )
        )
    learned = tuple(Weights(f"w{n}", random.randint(1, 90)) for n in range(groups))
    return Operators(graphs.SCHEMA, "random", tuple(found), learned)


def _region(random: Random, given: Dimension, own: list[Dimension]) -> Region:
    of = random.randrange(len(own))
    match random.randrange(4):
        case 0 | 1:
            return Region(1, 0 if given.kind == "sample" else of)
        case 2:
            return Region(given.size)
        case _:
            return Region(random.randint(1, 3), of, random.randint(1, 2), random.randint(-3, 2))
