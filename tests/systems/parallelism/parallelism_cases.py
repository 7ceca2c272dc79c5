"""Small networks on small clusters, at random: `random_case(seed)`, or `cases()` for hypothesis.

Rates and sizes of weights are such that doubles are exact: no two ways to count may differ by a
rounding.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st
from parallelism_oracle import Choice, Devices

from dltune.systems.parallelism.model.problem import Configuration, mesh, soap
from dltune.systems.parallelism.schemas.operators import (
    SCHEMA,
    Dimension,
    Input,
    Operator,
    Operators,
    Region,
    Weights,
)

COUNTS = (1, 2, 3, 4, 4, 6, 6, 8, 8)  # of devices
MOST_POSITIONS = 9  # of a dimension
MOST_CHOICES = 6  # of an operator, but one
MOST_NS = 50  # of an operator's task
# divided by any number of shards and of devices it is whole
WEIGHTS = math.lcm(*COUNTS) * math.lcm(*range(1, 9))


@dataclass(frozen=True)
class Case:
    """`catalogs`: in what ways each operator may be divided. `strategy`: which of them each has.
    `moves`: then one operator after the other changes, (operator, choice)."""

    graph: Operators
    devices: Devices
    catalogs: tuple[tuple[Choice, ...], ...]
    strategy: tuple[int, ...]
    moves: tuple[tuple[int, int], ...]

    def chosen(self, strategy: Sequence[int]) -> list[Choice]:
        return [of[at] for of, at in zip(self.catalogs, strategy, strict=True)]

    def strategies(self) -> list[tuple[int, ...]]:
        """The first, and that after each move."""
        every = [self.strategy]
        for operator, choice in self.moves:
            every.append((*every[-1][:operator], choice, *every[-1][operator + 1 :]))
        return every


def random_case(seed: int) -> Case:
    return _case(Random(seed))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    return _case(draw(st.randoms(use_true_random=False)))


def _case(random: Random) -> Case:
    count = random.choice(COUNTS)
    devices = _devices(random, count)
    graph = _graph(random)
    shape = random.choice(_shapes(count))
    # alike, alike divided: the steps of one recurrent layer
    some = {one.dimensions: _configurations(random, one, shape) for one in graph.operators}
    catalogs = tuple(
        tuple(
            Choice(each, _ns(random, devices), _ns(random, devices))
            for each in some[one.dimensions]
        )
        for one in graph.operators
    )
    strategy = [random.randrange(len(of)) for of in catalogs]
    if random.randrange(2):
        _agree(graph, catalogs, strategy)
    moves = []
    for _ in range(random.randrange(4)):
        operator = random.randrange(len(catalogs))
        moves.append((operator, random.randrange(len(catalogs[operator]))))
    devices = dataclasses.replace(
        devices,
        all_reduce=random.choice([0.0, 0.0, 0.5, 1.25]),
        all_to_all=random.choice([1.0, 1.0, 1.5]),
    )
    return Case(graph, devices, catalogs, tuple(strategy), tuple(moves))


def _shapes(count: int) -> list[tuple[int, ...]]:
    """Of meshes of so many devices."""
    pairs = [(n, count // n) for n in range(2, count) if count % n == 0]
    return [(count,), *pairs, *([(2, 2, 2)] if count == 8 else [])]


def _devices(random: Random, count: int) -> Devices:
    """Every pair has a channel of its own, or some share one, or senders do nothing else while they
    send."""
    kinds = random.randint(1, 3)
    hosts = random.randint(1, min(4, count))
    # in a row in the usual clusters; the order must not matter
    on = [n * hosts // count for n in range(count)]
    if not random.randrange(4):
        on = [random.randrange(hosts) for _ in range(count)]
    channels = random.choice([0, random.randint(1, 4), count * count])
    latency = random.choice([0, 5, MOST_NS])
    unit = 2.0 ** -random.randint(2, 12)

    def table(value):
        return tuple(tuple(value(a, b) for b in range(count)) for a in range(count))

    def channel(a: int, b: int) -> int:
        if channels == 0:
            return a
        return count + (a * count + b if channels == count * count else random.randrange(channels))

    return Devices(
        kinds=tuple(random.randrange(kinds) for _ in range(count)),
        hosts=tuple(on),
        channel=table(channel),
        latency=table(lambda a, b: random.randint(0, latency)),
        ns_per_byte=table(lambda a, b: random.randint(0, 9) * unit),
        update_ns_per_byte=random.choice([0.0, random.randint(1, 9) * 2.0**-12]),
    )


def _graph(random: Random) -> Operators:
    """Chains, branches and joins: each operator reads none to three of those before it."""
    groups = random.choice([0, 1, 1, 2])
    operators: list[Operator] = []
    for at in range(random.randint(1, 6)):
        weights = random.randrange(groups) if groups and random.randrange(3) else None
        dimensions = _dimensions(random)
        if weights is not None and random.randrange(3):
            sharing = [one.dimensions for one in operators if one.weights == weights]
            dimensions = sharing[-1] if sharing else dimensions
        inputs = []
        for _ in range(random.choice([0, 1, 1, 1, 2, 2, 3]) if at else 0):
            producer = random.choice([at - 1, random.randrange(at)])
            given = operators[producer].dimensions
            regions = tuple(_region(random, one, dimensions) for one in given)
            inputs.append(Input(producer, regions))
        operators.append(
            Operator(
                name=f"op{at}",
                type="Any",
                dimensions=dimensions,
                flops=1.0,
                backward_flops=1.0,
                inputs=tuple(inputs),
                weights=weights,
                element=random.choice([1, 2, 4]),
                gradient=bool(random.randrange(5)),
            )
        )
    learned = tuple(Weights(f"w{n}", random.randint(1, 9) * WEIGHTS) for n in range(groups))
    return Operators(SCHEMA, "random", tuple(operators), learned)


def _dimensions(random: Random) -> tuple[Dimension, ...]:
    dimensions: list[Dimension] = []
    for n in range(random.randint(1, 4)):
        kinds = ["sample", "attribute", "whole"]
        if all(one.kind != "parameter" for one in dimensions):
            kinds += ["parameter"] * 3
        size = random.randint(1, MOST_POSITIONS)
        dimensions.append(Dimension(f"d{n}", size, random.choice(kinds)))
    return tuple(dimensions)


def _region(random: Random, given: Dimension, own: Sequence[Dimension]) -> Region:
    """Of one dimension of an input, for the reader's own dimensions."""
    of = random.randrange(len(own))
    match random.choice(["same", "same", "whole", "window", "concatenated", "slice"]):
        case "same":
            return Region(extent=1, of=of)
        case "whole":
            return Region(extent=given.size)
        case "window":
            # of a convolution or a pool: strides may step over positions, and go over the edges
            extent = random.randint(1, 5)
            return Region(extent, of, stride=random.randint(1, 3), start=-random.randrange(extent))
        case "concatenated":
            # the input's first position is the output's at an offset: others read nothing of it
            return Region(extent=1, of=of, start=-random.randrange(own[of].size))
        case _:
            # the same for all: it may begin before the input, or reach or lie behind its end
            return Region(random.randint(1, 5), start=random.randint(-2, given.size))


def _configurations(
    random: Random, operator: Operator, shape: tuple[int, ...]
) -> list[Configuration]:
    """Some of either catalog, and last that all devices do the same."""
    meshed = mesh(operator, shape)
    some = [
        one
        for catalog in (soap(operator, math.prod(shape)), meshed)
        for one in random.sample(catalog, min(len(catalog), MOST_CHOICES // 2))
    ]
    return [*dict.fromkeys([*some, meshed[-1]])]


def _ns(random: Random, devices: Devices) -> tuple[int, ...]:
    return tuple(random.randint(1, MOST_NS) for _ in range(max(devices.kinds) + 1))


def _agree(graph: Operators, catalogs: Sequence[Sequence[Choice]], strategy: list[int]) -> None:
    """Operators that share weights are divided alike, where they can be."""
    for operator, catalog in enumerate(catalogs):
        group = graph.operators[operator].weights
        first = next(n for n, one in enumerate(graph.operators) if one.weights == group)
        wanted = catalogs[first][strategy[first]].configuration
        alike = [n for n, choice in enumerate(catalog) if choice.configuration == wanted]
        if group is not None and alike:
            strategy[operator] = alike[0]
