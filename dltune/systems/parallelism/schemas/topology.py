"""The topology document: devices and the links between them, for `dltune plan parallelism`.

Bandwidths are in bytes per second and latencies in seconds. Devices, switches and kinds are
referred to by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from dltune.base import documents
from dltune.base.documents import AMOUNT, FILLED, LABEL, POSITIVE, Bound, each, one_of, repeated

SCHEMA = "dltune.topology/1"

_TWO = Bound("two different names", lambda ends: ends[0] != ends[1])


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of device.

    `name`: name of the kind.
    `flops`: peak arithmetic rate, in operations per second.
    `bandwidth`: peak rate of the device's memory, in bytes per second.
    `overhead`: seconds per op in addition to its work.
    `share`: share of the peak rates that ops reach.
    `source`: where the values come from.
    """

    name: Annotated[str, LABEL]
    flops: Annotated[float, POSITIVE]
    bandwidth: Annotated[float, POSITIVE]
    overhead: Annotated[float, AMOUNT] = 0.0
    share: Annotated[float, POSITIVE] = 1.0
    source: str = ""


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device.

    `name`: name of the device.
    `kind`: name of its kind.
    `host`: host of the device. Gradients are summed within a host first.
    """

    name: Annotated[str, LABEL]
    kind: str
    host: str


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A link between two devices or switches.

    `ends`: names of the two ends.
    `bandwidth`: bytes per second.
    `latency`: seconds.
    `shared`: true if both directions share the bandwidth; otherwise each direction has it.
    """

    ends: Annotated[tuple[str, str], _TWO]
    bandwidth: Annotated[float, POSITIVE]
    latency: Annotated[float, AMOUNT]
    shared: bool = False


class Topology(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Devices and links.

    `name`: name of the topology.
    `kinds`: kinds of devices.
    `devices`: devices.
    `links`: links between devices and switches.
    `switches`: names of switches, which join links and compute nothing.
    `overlap`: true if a device computes while it sends.
    `all_reduce`, `all_to_all`: time per byte of this collective, divided by the time per byte of a
      plain transfer. Only used for plans for JAX and Keras.
    `source`: where the links' values come from.
    """

    schema: str
    name: str
    kinds: tuple[Kind, ...]
    devices: Annotated[tuple[Device, ...], FILLED]
    links: tuple[Link, ...] = ()
    switches: tuple[str, ...] = ()
    overlap: bool = True
    all_reduce: Annotated[float, POSITIVE] = 1.0
    all_to_all: Annotated[float, POSITIVE] = 1.0
    source: str = ""

    def relation_faults(self) -> Iterator[str]:
        kinds = [kind.name for kind in self.kinds]
        yield from repeated("kinds", "name", kinds)
        some_kind = one_of(kinds, "kinds")
        for here, device in each("devices", self.devices):
            yield from some_kind.of(here, device, "kind")
        names = [*(device.name for device in self.devices), *self.switches]
        yield from repeated("devices and switches", "name", names)
        some_end = one_of(set(names), "devices and switches")
        for here, link in each("links", self.links):
            yield from some_end.faults(f"{here}.ends", *link.ends)


load = documents.reader(Topology, SCHEMA)
