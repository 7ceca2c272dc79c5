"""Costs of a profiled step's operators on devices of the profiled machine, and on others."""

from __future__ import annotations

import divided
import msgspec
import pytest
import synthetic

from dltune.systems.parallelism.inputs import Timed
from dltune.systems.parallelism.model.problem import part, roofline
from dltune.systems.parallelism.model.profile_operators import Measured, Seconds
from dltune.systems.parallelism.schemas.topology import Device, Kind, Topology

GRAPH = divided.network()
COUNT = len(GRAPH.operators)
MACHINE = synthetic.machine(4)
NONE = Seconds()


def measured(forward: Seconds, backward: Seconds) -> Measured:
    return Measured(GRAPH, (forward,) * COUNT, (backward,) * COUNT, NONE, NONE, ())


def cluster(*hosts: int, kind: str = MACHINE.name, overhead: float = 0.0) -> Topology:
    """So many devices on each host."""
    devices = tuple(
        Device(f"{host}.{n}", kind, f"h{host}") for host, count in enumerate(hosts)
        for n in range(count)
    )  # fmt: skip
    kinds = (Kind(kind, 1e9, 1e9, overhead),)
    return msgspec.structs.replace(
        divided.cluster(), kinds=kinds, devices=devices, links=(), switches=()
    )


def taken(found: Measured, topology: Topology, degrees: tuple[int, ...] = (1, 1)):
    operator = GRAPH.operators[-1]
    costs = Timed(found, MACHINE, topology)
    return costs(operator, part(GRAPH, operator, degrees), topology.kinds[0])


@pytest.mark.parametrize(
    ("devices", "seconds"),
    [(1, 1.0), (2, 2.0), (3, 3.0), (4, 3.5), (9, 3.5)],
)
def test_devices_of_a_host_have_its_cores_in_equal_parts(devices: int, seconds: float) -> None:
    """At its best an op takes a second, alone three and a half."""
    found = measured(Seconds(3.5, 1.0), Seconds(7.0, 2.0))
    assert taken(found, cluster(devices, 1)) == (seconds, 2 * seconds)


def test_a_part_takes_its_share_and_what_every_op_takes() -> None:
    found = measured(Seconds(2.0, 1.0), NONE)
    topology = cluster(1, overhead=0.5)
    assert taken(found, topology, (4, 2)) == (0.5 + 1 / 8, 0.0), "nothing goes backwards"


def test_other_devices_are_modelled() -> None:
    topology = cluster(2, kind="another")
    operator = GRAPH.operators[-1]
    whole = part(GRAPH, operator, (1, 1))
    found = taken(measured(Seconds(2.0, 1.0), NONE), topology)
    assert found == roofline(operator, whole, topology.kinds[0])
