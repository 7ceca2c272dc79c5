"""The operators document: a network as operators whose outputs can be divided over devices.

Times are seconds, sizes bytes. Operators and weights are meant by their positions in the document.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from dltune.documents import files
from dltune.documents.faults import AMOUNT, Bound, at_least, each, empty, index, repeated

SCHEMA = "dltune.operators/1"
MOST_DIMENSIONS = 4

# as FlexFlow (Jia, Zaharia and Aiken, 2018) tells dimensions apart in its section 4: of samples, of
# an attribute of one, of the op's parameters, which are divided with it; "whole" is never divided
Kind = Literal["sample", "attribute", "parameter", "whole"]


class Dimension(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of an operator's output: `size` positions."""

    name: str
    size: int
    kind: Kind


class Region(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is read of one dimension of an input for the positions from `low` to below `high` of the
    output's dimension `of`: from low * stride + start to below
    (high - 1) * stride + start + extent, as far as the input goes. Without `of` it is from `start`
    to below start + extent for all."""

    extent: int
    of: int | None = None
    stride: int = 1
    start: int = 0


class Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The output of `operator`, one of those before. `regions`: of each of its dimensions."""

    operator: int
    regions: tuple[Region, ...]


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What operators learn together; `bytes` of them, none is that of no other."""

    name: str
    bytes: int


class Operator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One operator, forwards and backwards.

    `type`: those of one type with the same local shapes take the same time. `dimensions`: of its
    output, one of kind "parameter" at most. `weights`: what it learns. `element`: bytes of a number
    of the output. `flops` and `backward_flops`: floating-point operations of the whole, those of
    the gradients to all that it reads and learns. `gradient`: whether any reaches what it gives out
    (none does where it only hands the step its data). `block`: a name that operators have in common
    which do the same in the network, as the steps of one recurrent layer (empty: its own).
    """

    name: str
    type: str
    dimensions: tuple[Dimension, ...]
    flops: float
    backward_flops: float
    inputs: tuple[Input, ...] = ()
    weights: int | None = None
    element: int = 4
    gradient: bool = True
    block: str = ""

    @property
    def parameter(self) -> int | None:
        """Which dimension divides what it learns."""
        return next((n for n, d in enumerate(self.dimensions) if d.kind == "parameter"), None)


class Operators(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A network; each operator stands after those that it reads."""

    schema: str
    name: str
    operators: tuple[Operator, ...]
    weights: tuple[Weights, ...] = ()


def check(graph: Operators) -> list[str]:
    """All that cannot be true of a network, one sentence each, the field's path first."""
    return [*_faults(graph)]


load = files.reader(Operators, SCHEMA, check)


def _faults(graph: Operators) -> Iterator[str]:
    if not graph.operators:
        yield "operators must not be empty"
    yield from repeated("operators", "name", (one.name for one in graph.operators))
    for here, learned in each("weights", graph.weights, "name"):
        yield from at_least(1).of(here, learned, "bytes")
    some_weights = index(len(graph.weights), "weights")
    for place, (here, one) in enumerate(each("operators", graph.operators, "name")):
        yield from empty(here, one, "type")
        yield from AMOUNT.of(here, one, "flops", "backward_flops")
        yield from at_least(1).of(here, one, "element")
        yield from some_weights.of(here, one, "weights")
        yield from _DIMENSIONS.of(here, one, "dimensions")
        for at, dimension in each(f"{here}.dimensions", one.dimensions, "name"):
            yield from at_least(1).of(at, dimension, "size")
        yield from repeated(f"{here}.dimensions", "name", (d.name for d in one.dimensions))
        if sum(d.kind == "parameter" for d in one.dimensions) > 1:
            yield f"{here}.dimensions must have one of kind 'parameter' at most"
        yield from _input_faults(graph, place, here)


def _input_faults(graph: Operators, place: int, here: str) -> Iterator[str]:
    own = graph.operators[place]
    earlier = index(place, "operators before it")
    some_dimension = index(len(own.dimensions), "its own dimensions")
    for at, read in each(f"{here}.inputs", own.inputs):
        if wrong := earlier.of(at, read, "operator"):
            yield from wrong
            continue
        given = graph.operators[read.operator].dimensions
        if len(read.regions) != len(given):
            many = len(read.regions)
            yield f"{at}.regions must be {len(given)}, one for each dimension, got {many}"
        for where, region in each(f"{at}.regions", read.regions):
            yield from at_least(1).of(where, region, "extent", "stride")
            yield from some_dimension.of(where, region, "of")


_DIMENSIONS = Bound(
    f"1 to {MOST_DIMENSIONS}", lambda dimensions: 1 <= len(dimensions) <= MOST_DIMENSIONS
)
