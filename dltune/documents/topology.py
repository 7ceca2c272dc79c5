"""The topology document: devices, and the links between them.

Bandwidths are bytes a second, latencies seconds. Devices, switches and kinds are meant by their
names.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dltune.documents import files
from dltune.documents.faults import AMOUNT, POSITIVE, Bound, each, one_of, repeated

SCHEMA = "dltune.topology/1"


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of devices. `flops` and `bandwidth`: peaks a second, the latter of its memory; `share`: of
    these, what ops come to; `overhead`: of every op. `source`: where the figures are from."""

    name: str
    flops: float
    bandwidth: float
    overhead: float = 0.0
    share: float = 1.0
    source: str = ""


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`host`: devices of one host add up their gradients before hosts do so with each other."""

    name: str
    kind: str
    host: str


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Between two devices or switches. `shared`: both directions share the bandwidth; else each has
    it."""

    ends: tuple[str, str]
    bandwidth: float
    latency: float
    shared: bool = False


class Topology(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`overlap`: whether a device goes on with other ops while it sends. `all_reduce` and
    `all_to_all`: how many times longer a byte takes in these collectives than sent alone, of a
    framework that has them (XLA's; a plan that is not for one does without). `source`: where the
    links' figures are from."""

    schema: str
    name: str
    kinds: tuple[Kind, ...]
    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    switches: tuple[str, ...] = ()
    overlap: bool = True
    all_reduce: float = 1.0
    all_to_all: float = 1.0
    source: str = ""


def check(topology: Topology) -> list[str]:
    """All that cannot be true of a topology, one sentence each, the field's path first."""
    return [*_faults(topology)]


load = files.reader(Topology, SCHEMA, check)


def _faults(topology: Topology) -> Iterator[str]:
    if not topology.devices:
        yield "devices must not be empty"
    yield from POSITIVE.of("", topology, "all_reduce", "all_to_all")
    kinds = {kind.name for kind in topology.kinds}
    yield from repeated("kinds", "name", (kind.name for kind in topology.kinds))
    for here, kind in each("kinds", topology.kinds, "name"):
        yield from POSITIVE.of(here, kind, "flops", "bandwidth", "share")
        yield from AMOUNT.of(here, kind, "overhead")
    some_kind = one_of(kinds, "kinds")
    for here, device in each("devices", topology.devices, "name"):
        yield from some_kind.of(here, device, "kind")
    names = [*(device.name for device in topology.devices), *topology.switches]
    yield from repeated("devices and switches", "name", names)
    some_end = one_of(set(names), "devices and switches")
    for here, link in each("links", topology.links):
        yield from POSITIVE.of(here, link, "bandwidth")
        yield from AMOUNT.of(here, link, "latency")
        yield from some_end.faults(f"{here}.ends", *link.ends)
        yield from _TWO.of(here, link, "ends")


_TWO = Bound("two different", lambda ends: ends[0] != ends[1])
