"""The document of operators' times: what parts of operators take on one device, measured.

A part is known by what decides its time: its operator's type, and the shapes that it reads and
gives out. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dltune.documents import files
from dltune.documents.faults import AMOUNT, POSITIVE, at_least, each, empty, repeated

SCHEMA = "dltune.operator-times/1"


class PartTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one part, forwards, and backwards to all that it reads and learns. `inputs` and `output`:
    shapes, the samples first; `data`: it reads what the step is given, to which no gradients go."""

    type: str
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    forward: float
    backward: float
    data: bool = False


class OperatorTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """On devices of one `kind`, `devices` of which share a host, with so many `cores` each.
    `framework`: what ran the operators, and its version. `update`: seconds in which a byte of
    weights is updated."""

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


load = files.reader(OperatorTimes, SCHEMA, check)


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
