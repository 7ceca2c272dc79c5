"""Networks and devices as a person names them."""

from __future__ import annotations

import divided
import msgspec
import pytest
import synthetic
from operator_steps import perceptron

from dltune.base import documents
from dltune.base.errors import UsageError
from dltune.schemas.profile import Profile
from dltune.systems.parallelism import inputs
from dltune.systems.parallelism.decide import Effort, decide
from dltune.systems.parallelism.model.problem import roofline
from dltune.systems.parallelism.replay import replayed
from dltune.systems.parallelism.schemas.topology import Topology


@pytest.fixture(scope="module")
def profile() -> Profile:
    """Of a step of training, beside one with less time that trains nothing."""
    net = perceptron()
    whole = synthetic.profile(synthetic.machine(2), [], {})
    other = msgspec.structs.replace(net.step, signature="other", nodes=(), share=0.1)
    step = msgspec.structs.replace(net.step, share=0.9)
    return msgspec.structs.replace(whole, steps=(other, step), ops=tuple(net.ops.values()))


def own(profile: Profile) -> Topology:
    """Two devices that are called as the profiled machine is."""
    cluster = divided.cluster(2, 1)
    kinds = (msgspec.structs.replace(cluster.kinds[0], name=profile.machine.name),)
    devices = tuple(
        msgspec.structs.replace(one, kind=profile.machine.name) for one in cluster.devices
    )
    return msgspec.structs.replace(cluster, kinds=kinds, devices=devices)


def test_a_profile_is_its_step_with_the_most_time(profile: Profile) -> None:
    found = inputs.profiled(profile)
    assert [one.name for one in found.graph.operators][2:4] == ["dense", "dense_1"]
    assert inputs.machine(found) == profile.machine
    for cluster, measured in ((own(profile), True), (divided.cluster(), False)):
        remarks = [*inputs.remarks(found, cluster)]
        assert found.timed(cluster) == measured
        assert any("are modelled" in one for one in remarks) != measured
        made = decide(found, cluster, "two", None, (), Effort(proposals=50)).section
        assert made.measured == measured
        assert replayed(made, [cluster, profile]).end / 1e9 == pytest.approx(made.seconds)


def test_a_profile_without_a_step(profile: Profile) -> None:
    with pytest.raises(UsageError, match="the profile contains no steps"):
        inputs.profiled(msgspec.structs.replace(profile, steps=()))


def test_published_networks_whatever_the_case() -> None:
    found = inputs.network("inception-V3", None)
    assert (found.name, found.batch) == ("Inception-v3", 64)
    assert found.costs(divided.cluster()) is roofline
    assert inputs.network("NMT", 8).batch == 8
    assert inputs.digests(found, divided.cluster())[0] == documents.digest(found.graph)


@pytest.mark.parametrize("name", ["p100:4", "P100:4", "k80:8"])
def test_published_clusters(name: str) -> None:
    assert len(inputs.devices(name).devices) == int(name.partition(":")[2])
