"""Networks as operators that can be divided over devices, and measured times of their parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from dltune.base import documents
from dltune.base.documents import (
    AMOUNT,
    FILLED,
    LABEL,
    POSITIVE,
    Bound,
    at_least,
    each,
    index,
    repeated,
)

SCHEMA = "dltune.operators/1"
MOST_DIMENSIONS = 4

# FlexFlow (Jia, Zaharia and Aiken, 2018) distinguishes dimensions in section 4: of samples, of an
# attribute of one, of the op's parameters, which are divided with it; "whole" is never divided
Kind = Literal["sample", "attribute", "parameter", "whole"]

_DIMENSIONS = Bound(
    f"1 to {MOST_DIMENSIONS} dimensions", lambda dimensions: 1 <= len(dimensions) <= MOST_DIMENSIONS
)


class Dimension(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A dimension of an operator's output.

    `name`: name of the dimension.
    `size`: number of positions.
    `kind`: `sample`; `attribute` of a sample; `parameter`, which divides the weights too (at most
      one dimension); `whole`, which is never divided.
    """

    name: Annotated[str, LABEL]
    size: Annotated[int, at_least(1)]
    kind: Kind


class Region(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of an input dimension that a part of the output reads.

    Positions `low` to `high` (excluded) of the output dimension `of` need the input positions from
    low * stride + start to (high - 1) * stride + start + extent (excluded), as far as the input has
    them. Without `of`, every part reads the positions from `start` to start + extent.

    `extent`: number of positions read.
    `of`: output dimension that determines the region; null if the region is always the same.
    `stride`, `start`: see above.
    """

    extent: Annotated[int, at_least(1)]
    of: int | None = None
    stride: Annotated[int, at_least(1)] = 1
    start: int = 0


class Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An input of an operator.

    `operator`: position of an earlier operator whose output is read.
    `regions`: one region per dimension of that output.
    """

    operator: int
    regions: tuple[Region, ...]


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Weights that operators learn together.

    `name`: name of the group.
    `bytes`: size. Groups do not overlap.
    """

    name: Annotated[str, LABEL]
    bytes: Annotated[int, at_least(1)]


class Operator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operator with its forward and backward pass.

    `name`: unique name.
    `type`: operators with the same type and the same local shapes take the same time.
    `dimensions`: one to four dimensions of the output.
    `flops`: floating-point operations of the whole forward pass.
    `backward_flops`: floating-point operations of all gradients.
    `inputs`: outputs of earlier operators that it reads.
    `weights`: position of the weights that it learns; null for none.
    `element`: bytes per number of the output.
    `gradient`: false if the output needs no gradient, such as input data.
    `block`: name shared by operators that do the same in the network, such as the steps of a
      recurrent layer; empty for none.
    """

    name: Annotated[str, LABEL]
    type: Annotated[str, FILLED]
    dimensions: Annotated[tuple[Dimension, ...], _DIMENSIONS]
    flops: Annotated[float, AMOUNT]
    backward_flops: Annotated[float, AMOUNT]
    inputs: tuple[Input, ...] = ()
    weights: int | None = None
    element: Annotated[int, at_least(1)] = 4
    gradient: bool = True
    block: str = ""

    @property
    def parameter(self) -> int | None:
        """Return the dimension that divides its weights."""
        return next((n for n, d in enumerate(self.dimensions) if d.kind == "parameter"), None)

    def relation_faults(self) -> Iterator[str]:
        yield from repeated("dimensions", "name", (d.name for d in self.dimensions))
        if sum(d.kind == "parameter" for d in self.dimensions) > 1:
            yield "dimensions must have at most one of kind 'parameter'"


class Operators(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A network as operators whose outputs can be divided over devices.

    Write it by hand or with another program. `dltune plan parallelism` also makes it from a profile
    and for published networks. Sizes are in bytes. Operators, dimensions and weights are referred
    to by position, counted from 0.

    A type is any text. `dltune plan parallelism --measure` can run the types of a profile and these
    types: `conv`, `depthwise`, `max_pool` and `avg_pool` with window and stride (`conv 3x3/2`);
    `einsum` with its equation (`einsum bnts,bsnh->btnh`); `dense`, `lstm`, `attention`,
    `embedding`, `add`, `multiply`, `concat`, `mean`, `loss`; and the element-wise types `bias`,
    `batch_norm`, `layer_norm`, `relu`, `gelu`, `tanh`, `sigmoid`, `softmax`, `scale`, `dropout`.
    Element-wise types can follow another type: `conv 3x3/2 bias batch_norm relu`.

    `name`: name of the network.
    `operators`: operators; each follows the operators that it reads.
    `weights`: groups of weights.
    """

    schema: str
    name: str
    operators: Annotated[tuple[Operator, ...], FILLED]
    weights: tuple[Weights, ...] = ()

    def relation_faults(self) -> Iterator[str]:
        yield from repeated("operators", "name", (one.name for one in self.operators))
        some_weights = index(len(self.weights), "weights")
        for place, (here, one) in enumerate(each("operators", self.operators)):
            yield from some_weights.of(here, one, "weights")
            yield from _input_faults(self, place, here)


load = documents.reader(Operators, SCHEMA)


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
            yield f"{at}.regions must have length {len(given)} (one for each dimension), got {many}"
        for where, region in each(f"{at}.regions", read.regions):
            yield from some_dimension.of(where, region, "of")


TIMES_SCHEMA = "dltune.operator-times/1"


class PartTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time of one part of an operator.

    `type`: type of the operator.
    `inputs`, `output`: shapes, with the samples in the first dimension.
    `forward`: time of the forward pass.
    `backward`: time of the gradients of all inputs and weights.
    `data`: true if the part reads the step's input data, which needs no gradient.
    """

    type: Annotated[str, LABEL]
    inputs: tuple[tuple[Annotated[int, at_least(1)], ...], ...]
    output: tuple[Annotated[int, at_least(1)], ...]
    forward: Annotated[float, POSITIVE]
    backward: Annotated[float, AMOUNT]
    data: bool = False


class OperatorTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured times of parts of operators on one kind of device.

    `dltune plan parallelism --times FILE --measure TIME` writes it. A part is identified by the
    type of its operator and the shapes that it reads and writes. Times are in seconds.

    `kind`: kind of device, as in a topology.
    `devices`: devices that share a host.
    `cores`: cores per device.
    `framework`: framework and version that ran the operators.
    `update`: time to update one byte of weights.
    `parts`: measured parts.
    `whole`: undivided operators, measured on all cores of a host.
    """

    schema: str
    kind: Annotated[str, FILLED]
    devices: Annotated[int, at_least(1)]
    cores: Annotated[int, at_least(1)]
    framework: Annotated[str, FILLED]
    update: Annotated[float, POSITIVE]
    parts: tuple[PartTime, ...]
    whole: tuple[PartTime, ...] = ()

    def relation_faults(self) -> Iterator[str]:
        for name, parts in (("parts", self.parts), ("whole", self.whole)):
            alike = ((one.type, one.inputs, one.output, one.data) for one in parts)
            yield from repeated(name, "type with its shapes", alike)


load_times = documents.reader(OperatorTimes, TIMES_SCHEMA)
