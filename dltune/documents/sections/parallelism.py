"""The plan's section on parallelism: over which devices each operator of a network is divided."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import msgspec

from dltune.documents.faults import AMOUNT, Bound, at_least, each, index, repeated

Consumer = Literal["keras", "jax"]

# what there is to tell of a plan in numbers
FIGURES = ("network", "seconds", "single", "sample", "bound", "bytes", "proposals")


class Divided(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operator. `dimensions`: of its output, by name; `degrees`: into how many parts each is
    divided; `parameter`: the one that divides what it learns, `weights` by name (empty: nothing).

    `devices`: the place in the section's `devices` of each task; tasks are numbered by the parts'
    positions in the dimensions and then by the replica, of which each part has `replicas`, the last
    fastest. `axes`: for each axis of the section's mesh the dimension that it divides, None where
    its devices compute the same.
    """

    name: str
    type: str
    dimensions: tuple[str, ...]
    degrees: tuple[int, ...]
    replicas: int
    devices: tuple[int, ...]
    parameter: int | None = None
    weights: str = ""
    axes: tuple[int | None, ...] = ()


class Parallelism(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`mesh`: the devices' numbers along each of its axes, the last fastest; empty where operators
    are on blocks of devices of their own. `consumer`: what the strategy was restricted to. `hosts`:
    of each device, by a name or an address at which the others reach it; empty where all are on
    one.

    `seconds`: of a step as simulated; `single`: on one device, `sample`: with every operator
    divided by samples over all of them; `bound`: no strategy of the same space takes less (None:
    not known). `bytes`: that a step sends between devices. `proposals`: strategies simulated.
    """

    network: str
    devices: tuple[str, ...]
    mesh: tuple[int, ...]
    operators: tuple[Divided, ...]
    seconds: float
    single: float
    sample: float
    bytes: int
    proposals: int
    bound: float | None = None
    consumer: Consumer | None = None
    hosts: tuple[str, ...] = ()


def faults(section: Parallelism) -> Iterator[str]:
    """All that cannot be done, one sentence each, the field's path first."""
    here = "parallelism"
    yield from AMOUNT.of(
        here, section, "seconds", "single", "sample", "bound", "bytes", "proposals"
    )
    yield from repeated(f"{here}.devices", "name", section.devices)
    yield from at_least(2, "an axis divides something").faults(f"{here}.mesh", *section.mesh)
    if section.mesh and math.prod(section.mesh) != len(section.devices):
        yield f"{here}.mesh must be of its {len(section.devices)} devices, got {section.mesh}"
    if section.consumer and not section.mesh and len(section.devices) > 1:
        yield f"{here}.mesh must not be empty for {section.consumer}"
    if section.hosts:
        yield from Bound(
            f"{len(section.devices)}, one for each device",
            lambda hosts: len(hosts) == len(section.devices),
        ).of(here, section, "hosts")
    for name in ("devices", "operators"):
        if not getattr(section, name):
            yield f"{here}.{name} must not be empty"
    yield from repeated(f"{here}.operators", "name", (one.name for one in section.operators))
    a_device = index(len(section.devices), "parallelism.devices")
    for at, one in each(f"{here}.operators", section.operators, "name"):
        yield from at_least(1).of(at, one, "replicas")
        yield from at_least(1).faults(f"{at}.degrees", *one.degrees)
        yield from a_device.faults(f"{at}.devices", *one.devices)
        if len(one.degrees) != len(one.dimensions):
            yield f"{at}.degrees must be {len(one.dimensions)}, one for each dimension"
        if len(one.devices) != math.prod(one.degrees) * one.replicas:
            yield f"{at}.devices must be one for each part and replica, got {len(one.devices)}"
        a_dimension = index(len(one.dimensions), "its dimensions")
        yield from a_dimension.of(at, one, "parameter")
        yield from a_dimension.faults(
            f"{at}.axes", *(axis for axis in one.axes if axis is not None)
        )
        yield from _as_many(len(section.mesh)).of(at, one, "axes")


def _as_many(count: int) -> Bound:
    return Bound(f"{count}, one for each axis of the mesh", lambda axes: len(axes) == count)
