"""The plan's section on parallelism: how the operators of a network are divided over devices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from dltune.base.documents import AMOUNT, FILLED, LABEL, Bound, at_least, each, index, repeated

Consumer = Literal["keras", "jax", "torch"]

# names of baselines: the job without a plan
ONE_PROCESS = "one process on one device"
ALL_CORES = "one process on all cores of a host"

# figures of a plan
FIGURES = (
    *("network", "topology", "batch", "seconds", "compute", "bytes"),
    *("bound", "proof", "baselines", "proposals", "searched", "measured", "times"),
)


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another strategy, simulated.

    `name`: name of the strategy.
    `seconds`, `compute`, `bytes`: as in the section.
    `same`: name of an earlier baseline with the same strategy; empty for none.
    """

    name: Annotated[str, LABEL]
    seconds: Annotated[float, AMOUNT]
    compute: Annotated[float, AMOUNT]
    bytes: Annotated[int, AMOUNT]
    same: str = ""


class Times(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured times of operator parts.

    `digest`: SHA-256 of the times that the plan needs.
    `parts`: number of parts.
    `framework`: framework that ran them.
    `cores`: cores per device.
    """

    digest: str
    parts: Annotated[int, at_least(1)]
    framework: str
    cores: Annotated[int, at_least(1)]


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

    name: Annotated[str, LABEL]
    type: Annotated[str, FILLED]
    dimensions: tuple[str, ...]
    degrees: tuple[Annotated[int, at_least(1)], ...]
    replicas: Annotated[int, at_least(1)]
    devices: tuple[int, ...]
    parameter: int | None = None
    weights: str = ""
    axes: tuple[int | None, ...] = ()
    block: str = ""

    def relation_faults(self) -> Iterator[str]:
        if len(self.degrees) != len(self.dimensions):
            yield (
                f"degrees must have length {len(self.dimensions)} (one for each dimension), got "
                f"{len(self.degrees)}"
            )
        if len(self.devices) != math.prod(self.degrees) * self.replicas:
            yield (
                f"devices must have length {math.prod(self.degrees) * self.replicas} (one for "
                f"each part and replica), got {len(self.devices)}"
            )
        a_dimension = index(len(self.dimensions), "dimensions")
        yield from a_dimension.of("", self, "parameter")
        yield from a_dimension.faults("axes", *(axis for axis in self.axes if axis is not None))


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
    devices: Annotated[tuple[str, ...], FILLED]
    mesh: tuple[Annotated[int, at_least(2)], ...]
    operators: Annotated[tuple[Divided, ...], FILLED]
    seconds: Annotated[float, AMOUNT]
    compute: Annotated[float, AMOUNT]
    bytes: Annotated[int, AMOUNT]
    baselines: tuple[Baseline, ...]
    proposals: Annotated[int, AMOUNT]
    searched: Annotated[float, AMOUNT]
    measured: bool = False
    batch: Annotated[int | None, at_least(1)] = None
    bound: Annotated[float | None, AMOUNT] = None
    proof: str = ""
    consumer: Consumer | None = None
    hosts: tuple[str, ...] = ()
    times: Times | None = None

    def relation_faults(self) -> Iterator[str]:
        yield from repeated("baselines", "name", (one.name for one in self.baselines))
        yield from repeated("devices", "name", self.devices)
        if self.mesh and math.prod(self.mesh) != len(self.devices):
            yield (
                f"mesh must multiply to {len(self.devices)} (the number of devices), got "
                f"{self.mesh}"
            )
        if self.consumer and not self.mesh and len(self.devices) > 1:
            yield f"mesh must not be empty for {self.consumer}"
        if self.hosts:
            yield from _as_many(len(self.devices), "device").of("", self, "hosts")
        yield from repeated("operators", "name", (one.name for one in self.operators))
        a_device = index(len(self.devices), "parallelism.devices")
        axes = _as_many(len(self.mesh), "axis of the mesh")
        for at, one in each("operators", self.operators):
            yield from a_device.faults(f"{at}.devices", *one.devices)
            yield from axes.of(at, one, "axes")


def _as_many(count: int, what: str) -> Bound:
    return Bound(f"of length {count} (one for each {what})", lambda values: len(values) == count)
