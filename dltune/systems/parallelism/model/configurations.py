"""The divisions of one operator: the SOAP space (Jia, Zaharia and Aiken, 2018, section 4)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dltune.base.errors import UsageError
from dltune.systems.parallelism.schemas.operators import MOST_DIMENSIONS, Operator

REPLICA = MOST_DIMENSIONS  # the axis of copies, after those of the output's dimensions
ROW_MAJOR = (0, 1, 2, 3, REPLICA)


@dataclass(frozen=True)
class Configuration:
    """An operator as equal parts of its output, each on separate devices.

    `degrees`: into how many parts each of the four dimensions is divided, 1 for those that the
    operator has not. `replicas`: by how many devices each part is computed, each of which then has
    it. Tasks are numbered by the parts' positions in the four dimensions, then by the replica, the
    last fastest; that at (i0, i1, i2, i3, replica) is on the device `start` + `stride` times its
    place when these five are counted through in `order`, the slowest first, modulo the number of
    devices.
    """

    degrees: tuple[int, int, int, int]
    replicas: int = 1
    start: int = 0
    order: tuple[int, ...] = ROW_MAJOR
    stride: int = 1

    @property
    def parts(self) -> int:
        return math.prod(self.degrees)

    @property
    def tasks(self) -> int:
        return self.parts * self.replicas

    def devices(self, count: int) -> list[int]:
        """Return the device of each task; `count` of them are there."""
        sizes = (*self.degrees, self.replicas)
        steps, step = [0] * len(sizes), self.stride
        for axis in reversed(self.order):
            steps[axis], step = step, step * sizes[axis]
        places = itertools.product(*(range(size) for size in sizes))
        return [
            (self.start + sum(i * s for i, s in zip(place, steps, strict=True))) % count
            for place in places
        ]

    def part(self, operator: Operator, place: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Positions of the part at `place` in each dimension that the operator has: from, to
        below."""
        return tuple(
            (i * dimension.size // degree, (i + 1) * dimension.size // degree)
            for dimension, i, degree in zip(operator.dimensions, place, self.degrees, strict=False)
        )


def soap(operator: Operator, devices: int, hosts: int = 1) -> list[Configuration]:
    """All ways to divide it evenly over one of the equal blocks of the devices, the number of parts
    divides theirs; or over one device of each of so many hosts, where they have as many each."""
    found = []
    for degrees in _degrees(operator, devices):
        parts = math.prod(degrees)
        found += [Configuration(degrees, 1, start) for start in range(0, devices, parts)]
        if parts == hosts > 1 and devices > hosts:
            each = devices // hosts
            found += [Configuration(degrees, 1, start, stride=each) for start in range(each)]
    return found


def mesh(operator: Operator, shape: Sequence[int]) -> list[Configuration]:
    """Return all ways on a mesh of devices of this shape, its last axis the fastest: each axis
    divides one dimension, or has all of its devices compute the same (GSPMD's shardings). Where two
    axes divide the same dimension they are neighbours."""
    found: dict[Configuration, None] = {}
    axes = [
        *(n for n, dimension in enumerate(operator.dimensions) if dimension.kind != "whole"),
        REPLICA,
    ]
    for chosen in itertools.product(axes, repeat=len(shape)):
        runs = [axis for axis, _ in itertools.groupby(chosen)]
        sizes = [1] * (MOST_DIMENSIONS + 1)
        for axis, size in zip(chosen, shape, strict=True):
            sizes[axis] *= size
        fits = all(
            size <= dimension.size
            for size, dimension in zip(sizes, operator.dimensions, strict=False)
        )
        if fits and len(set(runs)) == len(runs):
            rest = [axis for axis in ROW_MAJOR if axis not in runs]
            degrees = (sizes[0], sizes[1], sizes[2], sizes[3])
            found[Configuration(degrees, sizes[REPLICA], 0, (*runs, *rest))] = None
    return [*found]


def sample(operator: Operator) -> int | None:
    """Its dimension of samples."""
    return next((n for n, d in enumerate(operator.dimensions) if d.kind == "sample"), None)


def require_some(operator: Operator, configurations: Sequence[Configuration]) -> None:
    """Raises UsageError when nothing divides it over the devices that there are."""
    if not configurations:
        raise UsageError(
            f"the operator {operator.name!r} cannot be divided over these devices",
            remedy="give the operator a dimension that can be divided, or use other devices",
        )


def _degrees(operator: Operator, devices: int) -> Iterator[tuple[int, int, int, int]]:
    divisors = [n for n in range(1, devices + 1) if devices % n == 0]
    choices = [
        [1] if d.kind == "whole" else [n for n in divisors if n <= d.size]
        for d in operator.dimensions
    ]
    choices += [[1]] * (MOST_DIMENSIONS - len(choices))
    for degrees in itertools.product(*choices):
        if devices % math.prod(degrees) == 0:
            yield (degrees[0], degrees[1], degrees[2], degrees[3])
