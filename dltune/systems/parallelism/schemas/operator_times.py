"""The document of operator times: measured times of parts of operators on one kind of device.

`dltune plan parallelism --times FILE --measure TIME` writes it. A part is identified by the type of
its operator and the shapes that it reads and writes. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dltune.base import documents
from dltune.base.documents import AMOUNT, POSITIVE, at_least, each, empty, repeated

SCHEMA = "dltune.operator-times/1"


class PartTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time of one part of an operator.

    `type`: type of the operator.
    `inputs`, `output`: shapes, with the samples in the first dimension.
    `forward`: time of the forward pass.
    `backward`: time of the gradients of all inputs and weights.
    `data`: true if the part reads the step's input data, which needs no gradient.
    """

    type: str
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    forward: float
    backward: float
    data: bool = False


class OperatorTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Operator times on one kind of device.

    `kind`: kind of device, as in a topology.
    `devices`: devices that share a host.
    `cores`: cores per device.
    `framework`: framework and version that ran the operators.
    `update`: time to update one byte of weights.
    `parts`: measured parts.
    """

    schema: str
    kind: str
    devices: int
    cores: int
    framework: str
    update: float
    parts: tuple[PartTime, ...]


def check(times: OperatorTimes) -> list[str]:
    """All that cannot be true of such times, one sentence each, the field's path first."""
    return [*_faults(times)]


load = documents.reader(OperatorTimes, SCHEMA, check)


def _faults(times: OperatorTimes) -> Iterator[str]:
    yield from empty("", times, "kind", "framework")
    yield from at_least(1).of("", times, "devices", "cores")
    yield from POSITIVE.of("", times, "update")
    for here, one in each("parts", times.parts, "type"):
        yield from POSITIVE.of(here, one, "forward")
        yield from AMOUNT.of(here, one, "backward")
        yield from at_least(1).faults(f"{here}.output", *one.output)
        for at, shape in each(f"{here}.inputs", one.inputs):
            yield from at_least(1).faults(at, *shape)
    alike = ((one.type, one.inputs, one.output, one.data) for one in times.parts)
    yield from repeated("parts", "type with its shapes", alike)
