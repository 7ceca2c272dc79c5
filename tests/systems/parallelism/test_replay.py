"""A plan simulated again, for its timeline."""

from __future__ import annotations

import itertools

import divided
import msgspec
import pytest

from dltune.base.errors import UsageError
from dltune.systems.parallelism import inputs
from dltune.systems.parallelism.decide import Effort, decide
from dltune.systems.parallelism.replay import replayed
from dltune.systems.parallelism.schemas.operators import Operators
from dltune.systems.parallelism.schemas.strategy import Parallelism

NETWORK, CLUSTER = divided.network(), divided.cluster()


@pytest.fixture(scope="module")
def section() -> Parallelism:
    return divided.section(NETWORK, CLUSTER)


def test_it_takes_as_long_as_planned_and_sends_as_much(section: Parallelism) -> None:
    schedule = replayed(section, [CLUSTER, NETWORK])
    assert schedule.end / 1e9 == pytest.approx(section.seconds)
    assert [lane.label for lane in schedule.devices] == [*section.devices]
    for lane in (*schedule.devices, *schedule.links):
        assert all(a.end <= b.start for a, b in itertools.pairwise(lane.slices))
    names = {work.name.rpartition(",")[0] for lane in schedule.devices for work in lane.slices}
    assert {f"{one.name} forward" for one in section.operators} <= names
    kinds = {work.kind for lane in schedule.devices for work in lane.slices}
    assert {"steps", "product"} <= kinds, "by block, else by type"


def test_a_section_that_a_person_has_changed(section: Parallelism) -> None:
    """Everything on the last device: as long as its ops, and nothing is sent."""
    alone = tuple(
        msgspec.structs.replace(one, degrees=(1, 1), devices=(3,)) for one in section.operators
    )
    schedule = replayed(msgspec.structs.replace(section, operators=alone), [NETWORK, CLUSTER])
    assert [lane.label for lane in schedule.devices if lane.slices] == ["d3"]
    assert schedule.links == ()


def test_what_is_not_at_hand(section: Parallelism) -> None:
    other = Operators(NETWORK.schema, "small", NETWORK.operators[:2], NETWORK.weights)
    for documents in ([], [NETWORK], [CLUSTER], [other, CLUSTER]):
        with pytest.raises(UsageError, match="the documents of small and small are missing"):
            replayed(section, documents)


def test_published_ones_are_made_again_by_their_names() -> None:
    network = inputs.network("lenet", 8)
    cluster = inputs.devices("p100:2")
    made = decide(network, cluster, "p100:2", None, (), Effort(proposals=20)).section
    assert (made.network, made.batch) == ("LeNet", 8)
    assert replayed(made, []).end / 1e9 == pytest.approx(made.seconds)
    elsewhere = msgspec.structs.replace(made, batch=16)
    with pytest.raises(UsageError, match="the documents of LeNet and p100:2 are missing"):
        replayed(elsewhere, [])
