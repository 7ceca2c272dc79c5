"""The paper's two clusters."""

from __future__ import annotations

import itertools

import pytest

from dltune.base import documents
from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.systems.parallelism.inputs import CLUSTERS, k80, p100
from dltune.systems.parallelism.schemas.topology import load


def route(topology, start, end):
    """The fewest links between two devices; there is no other that is as short."""
    ways = [[start]]
    while ways and not any(way[-1] == end for way in ways):
        ways = [
            [*way, other]
            for way in ways
            for link in topology.links
            for here, other in (link.ends, link.ends[::-1])
            if here == way[-1] and other not in way
        ]
    (way,) = [way for way in ways if way[-1] == end]
    return way


def bandwidth(topology, start, end):
    links = {frozenset(link.ends): link.bandwidth for link in topology.links}
    way = route(topology, start, end)
    return min(links[frozenset(pair)] for pair in itertools.pairwise(way))


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 8, 64, 512])
def test_a_document_without_fault(name, gpus, tmp_path):
    topology = CLUSTERS[name](gpus)
    assert struct_faults("", topology) == []
    assert len(topology.devices) == gpus
    assert len({device.host for device in topology.devices}) == -(-gpus // 4)
    assert topology.overlap
    assert topology.source
    assert all(kind.source for kind in topology.kinds)
    with documents.claim(tmp_path / "topology.json", overwrite=False) as output:
        output.write(topology)
    assert load(tmp_path / "topology.json") == topology


@pytest.mark.parametrize("name", CLUSTERS)
def test_all_reach_each_other(name):
    topology = CLUSTERS[name](16)
    reached, before = {topology.devices[0].name}, 0
    while len(reached) > before:
        before = len(reached)
        reached |= {end for link in topology.links if reached & {*link.ends} for end in link.ends}
    assert reached == {*(device.name for device in topology.devices), *topology.switches}


def test_ways_between_p100():
    topology = p100()
    assert len(topology.devices) == 16
    assert route(topology, "gpu0", "gpu3") == ["gpu0", "gpu3"]
    assert route(topology, "gpu1", "gpu4") == [
        *("gpu1", "node0/pcie", "infiniband", "node1/pcie", "gpu4")
    ]
    assert bandwidth(topology, "gpu0", "gpu3") == 20e9
    assert bandwidth(topology, "gpu1", "gpu4") == 12.5e9  # 100 Gbit/s


def test_ways_between_k80():
    topology = k80()
    assert len(topology.devices) == 64
    assert route(topology, "gpu0", "gpu1") == ["gpu0", "node0/board0", "gpu1"]
    assert route(topology, "gpu1", "gpu2") == [
        *("gpu1", "node0/board0", "node0/pcie", "node0/board1", "gpu2")
    ]
    near, far, away = (bandwidth(topology, "gpu0", other) for other in ("gpu1", "gpu2", "gpu4"))
    assert near == pytest.approx(15.75e9, rel=0.001)
    assert near > far > away
    assert away == pytest.approx(54.5e9 / 8, rel=0.001)  # of 56 Gbit/s


def test_peaks():
    (p,), (k,) = p100(4).kinds, k80(4).kinds
    assert (p.flops, p.bandwidth) == (10.6e12, 732e9)
    assert (k.flops, k.bandwidth) == (4.37e12, 240e9)


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("gpus", [0, -4, 5, 6])
def test_parts_of_nodes(name, gpus):
    with pytest.raises(UsageError, match=f"a cluster of {gpus} GPUs is not possible"):
        CLUSTERS[name](gpus)
