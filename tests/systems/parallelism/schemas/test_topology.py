"""Devices and links: what they may be."""

from __future__ import annotations

from pathlib import Path

import divided
import msgspec
import pytest

from dltune.base import documents
from dltune.base.documents import struct_faults
from dltune.systems.parallelism.schemas import topology
from dltune.systems.parallelism.schemas.topology import Device, Kind, Link, Topology

CLUSTER = divided.cluster()
EXAMPLE = Path(__file__).parents[4] / "scripts" / "docs" / "examples" / "topology.json"


def test_the_example_of_the_docs(tmp_path: Path) -> None:
    found = documents.decode(EXAMPLE.read_bytes(), Topology, topology.SCHEMA, "docs")
    assert [device.host for device in found.devices] == ["one", "other"]
    path = tmp_path / "cluster.json"
    path.write_bytes(msgspec.json.encode(CLUSTER))
    assert topology.load(path) == CLUSTER


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"devices": ()}, "devices must not be empty"),
        ({"kinds": ()}, "devices[0] (d0).kind must be one of kinds, got 'fast'"),
        ({"kinds": (Kind("fast", 0.0, 1.0),)}, "kinds[0] (fast).flops must be finite and above 0"),
        ({"kinds": (Kind("fast", 1.0, 1.0),) * 2}, "kinds must contain each name only once"),
        ({"kinds": (Kind("fast", 1.0, 1.0, -1.0),)}, ".overhead must be finite and not negative"),
        (
            {"devices": (Device("between", "fast", "h"),)},
            "must contain each name only once, got 'between'",
        ),
        ({"links": (Link(("d0", "x"), 1.0, 0.0),)}, "links[0].ends must be one of devices and"),
        ({"links": (Link(("d0", "d0"), 1.0, 0.0),)}, "links[0].ends must be two different"),
        ({"links": (Link(("d0", "d1"), 0.0, 0.0),)}, ".bandwidth must be finite and above 0"),
        ({"links": (Link(("d0", "d1"), 1.0, -1.0),)}, ".latency must be finite and not negative"),
    ],
)
def test_what_cannot_be(changed: dict[str, object], told: str) -> None:
    found = struct_faults("", msgspec.structs.replace(CLUSTER, **changed))
    assert any(told in one for one in found), found
