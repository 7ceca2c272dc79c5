"""The plan's section on parallelism: over which devices each operator of a network is divided."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import msgspec

from dltune.documents.faults import AMOUNT, Bound, at_least, each, empty, index, repeated

Consumer = Literal["keras", "jax", "torch"]

# what there is to tell of a plan in numbers
FIGURES = (
    *("network", "topology", "batch", "seconds", "compute", "bytes"),
    *("bound", "proof", "baselines", "proposals", "searched", "measured", "times"),
)


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another strategy, as simulated: the same of it as of the plan's own."""

    name: str
    seconds: float
    compute: float
    bytes: int


class Times(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of operators' parts, each measured once: those that the plan was made with, by SHA-256, and
    how many `parts` they are of; by which `framework`, on how many `cores` a device has."""

    digest: str
    parts: int
    framework: str
    cores: int


class Divided(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operator. `dimensions`: of its output, by name; `degrees`: into how many parts each is
    divided; `parameter`: the one that divides what it learns, `weights` by name (empty: nothing).

    `devices`: the place in the section's `devices` of each task; tasks are numbered by the parts'
    positions in the dimensions and then by the replica, of which each part has `replicas`, the last
    fastest. `axes`: for each axis of the section's mesh the dimension that it divides, None where
    its devices compute the same. `block`: a name that operators have in common which do the same in
    the network (empty: its own).
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
    block: str = ""


class Parallelism(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`network` and `topology`: by name, those of published ones with the `batch` and the count
    that they were built with; `digests`: SHA-256 of both documents' content, by which what the plan
    was made from is known again.

    `mesh`: the devices' numbers along each of its axes, the last fastest; empty where operators
    are on blocks of devices of their own. `consumer`: what the strategy was restricted to. `hosts`:
    of each device, by a name or an address at which the others reach it; empty where all are on
    one.

    `seconds`: of a step as simulated, `compute`: of the ops of all devices in it, `bytes`: that it
    sends between devices; `baselines`: the same of other strategies. `bound`: no strategy of the
    same space takes less, by this `proof` (None: not known). `proposals`: changes that the search
    looked at, in `searched` seconds. `measured`: whether ops' times are measured, not modelled;
    `times`: those of their parts (None: a profile's, or modelled).
    """

    network: str
    topology: str
    digests: tuple[str, str]
    devices: tuple[str, ...]
    mesh: tuple[int, ...]
    operators: tuple[Divided, ...]
    seconds: float
    compute: float
    bytes: int
    baselines: tuple[Baseline, ...]
    proposals: int
    searched: float
    measured: bool = False
    batch: int | None = None
    bound: float | None = None
    proof: str = ""
    consumer: Consumer | None = None
    hosts: tuple[str, ...] = ()
    times: Times | None = None


def faults(section: Parallelism) -> Iterator[str]:
    """All that cannot be done, one sentence each, the field's path first."""
    here = "parallelism"
    yield from AMOUNT.of(
        here, section, "seconds", "compute", "bytes", "bound", "proposals", "searched"
    )
    yield from at_least(1).of(here, section, "batch")
    yield from at_least(1).of(f"{here}.times", section.times, "parts", "cores")
    yield from repeated(f"{here}.baselines", "name", (one.name for one in section.baselines))
    for at, baseline in each(f"{here}.baselines", section.baselines, "name"):
        yield from AMOUNT.of(at, baseline, "seconds", "compute", "bytes")
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
    yield from empty(here, section, "devices", "operators")
    yield from repeated(f"{here}.operators", "name", (one.name for one in section.operators))
    a_device = index(len(section.devices), "parallelism.devices")
    for at, one in each(f"{here}.operators", section.operators, "name"):
        yield from empty(at, one, "type")
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
