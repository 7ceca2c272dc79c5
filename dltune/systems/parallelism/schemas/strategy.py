"""The plan's section on parallelism: how the operators of a network are divided over devices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import msgspec

from dltune.base.documents import AMOUNT, Bound, at_least, each, empty, index, repeated

Consumer = Literal["keras", "jax", "torch"]

# figures of a plan
FIGURES = (
    *("network", "topology", "batch", "seconds", "compute", "bytes"),
    *("bound", "proof", "baselines", "proposals", "searched", "measured", "times"),
)


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another strategy, simulated.

    `name`: name of the strategy.
    `seconds`, `compute`, `bytes`: as in the section.
    """

    name: str
    seconds: float
    compute: float
    bytes: int


class Times(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured times of operator parts.

    `digest`: SHA-256 of the times that the plan needs.
    `parts`: number of parts.
    `framework`: framework that ran them.
    `cores`: cores per device.
    """

    digest: str
    parts: int
    framework: str
    cores: int


class Divided(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A divided operator.

    `name`, `type`: the operator.
    `dimensions`: names of its output's dimensions.
    `degrees`: number of parts per dimension.
    `replicas`: devices that compute the same part.
    `devices`: for each part in the order of the dimensions and each of its replicas (the last
      fastest), a position in the section's `devices`.
    `parameter`: dimension that divides the weights; null for none.
    `weights`: name of the weights; empty for none.
    `axes`: for each axis of the mesh, the dimension that it divides; null for none.
    `block`: name shared by operators of one layer; empty for none.
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
    """A strategy for a network.

    `network`, `topology`: names.
    `digests`: SHA-256 of the operators document and of the topology document.
    `devices`: names of the devices.
    `mesh`: shape of the device mesh, the last axis the fastest; empty if operators use separate
      blocks of devices.
    `operators`: operators in the order of the network.
    `seconds`: simulated step time.
    `compute`: simulated time of all ops on all devices.
    `bytes`: bytes sent between devices per step.
    `baselines`: other strategies.
    `proposals`: changes that the search evaluated.
    `searched`: duration of the search in seconds.
    `measured`: true if the times of ops are measured, not modelled.
    `batch`: batch size of a published network; otherwise null.
    `bound`: lower bound of the step time of any strategy in the same space; null if unknown.
    `proof`: proof of the bound.
    `consumer`: `keras`, `jax` or `torch` if the search was restricted to strategies that it can
      express.
    `hosts`: for each device, the host name or address on which its process is started; empty on a
      single host.
    `times`: measured times of operator parts; null for times of a profile or a model.
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
    yield from at_least(2).faults(f"{here}.mesh", *section.mesh)
    if section.mesh and math.prod(section.mesh) != len(section.devices):
        yield (
            f"{here}.mesh must multiply to {len(section.devices)} (the number of devices), got "
            f"{section.mesh}"
        )
    if section.consumer and not section.mesh and len(section.devices) > 1:
        yield f"{here}.mesh must not be empty for {section.consumer}"
    if section.hosts:
        yield from Bound(
            f"of length {len(section.devices)} (one for each device)",
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
            yield (
                f"{at}.degrees must have length {len(one.dimensions)} (one for each dimension), "
                "got "
                f"{len(one.degrees)}"
            )
        if len(one.devices) != math.prod(one.degrees) * one.replicas:
            yield (
                f"{at}.devices must have length {math.prod(one.degrees) * one.replicas} (one for "
                f"each part and replica), got {len(one.devices)}"
            )
        a_dimension = index(len(one.dimensions), "dimensions")
        yield from a_dimension.of(at, one, "parameter")
        yield from a_dimension.faults(
            f"{at}.axes", *(axis for axis in one.axes if axis is not None)
        )
        yield from _as_many(len(section.mesh)).of(at, one, "axes")


def _as_many(count: int) -> Bound:
    return Bound(
        f"of length {count} (one for each axis of the mesh)", lambda axes: len(axes) == count
    )
