"""The times of operators' parts: a file's, and those that are measured."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import divided
import jaxes
import msgspec
import pytest

from dltune.base import documents
from dltune.base.errors import DltuneError, UsageError
from dltune.system import topology as machine
from dltune.systems.parallelism import times
from dltune.systems.parallelism.decide import Effort, decide, space
from dltune.systems.parallelism.inputs import Given, requests, undivided
from dltune.systems.parallelism.jax import links
from dltune.systems.parallelism.jax.links import Speeds
from dltune.systems.parallelism.networks import lenet
from dltune.systems.parallelism.replay import replayed
from dltune.systems.parallelism.schemas.operators import OperatorTimes, PartTime
from dltune.systems.parallelism.schemas.topology import Topology

GIVEN, CLUSTER = Given(divided.network()), divided.cluster()
WAYS = space(CLUSTER, (), None)
WANTED = requests(GIVEN.graph, 4, WAYS)


def found(**changed: object) -> OperatorTimes:
    """Of every part, and of one that nobody wants."""
    made = divided.times()
    more = msgspec.structs.replace(made, parts=(*made.parts, PartTime("", (), (1,), 1, 1)))
    return msgspec.structs.replace(more, **changed)


def written(folder: Path, document: OperatorTimes) -> Path:
    path = folder / "times.json"
    path.write_bytes(msgspec.json.encode(document))
    return path


def test_a_plan_of_measured_times_is_simulated_again_with_these(tmp_path: Path) -> None:
    every = found()
    read = times.read(written(tmp_path, every), GIVEN, CLUSTER, WAYS)
    assert len(read.parts) == len(WANTED) == len(every.parts) - 1
    given = dataclasses.replace(GIVEN, times=read)
    section = decide(given, CLUSTER, "small", None, (), Effort(proposals=100)).section
    assert section.measured
    assert section.times is not None
    assert (section.times.parts, section.times.framework) == (len(WANTED), "JAX 1")
    # more that was measured since changes nothing
    schedule = replayed(section, [GIVEN.graph, CLUSTER, every])
    assert schedule.end / 1e9 == pytest.approx(section.seconds)
    assert any(work.kind == "updates" for lane in schedule.devices for work in lane.slices)
    alone = requests(GIVEN.graph, 1, undivided)
    whole = tuple(PartTime(one.type, one.inputs, one.output, 1, 1, one.data) for one in alone)
    ways = space(CLUSTER, (4,), "jax")
    given = dataclasses.replace(
        GIVEN, times=times.read(tmp_path / "times.json", GIVEN, CLUSTER, ways)
    )
    for_job = decide(given, CLUSTER, "small", "jax", (4,), Effort(proposals=10)).section
    for later in (every, found(whole=whole)):
        assert replayed(for_job, [GIVEN.graph, CLUSTER, later]).end
    slower = tuple(msgspec.structs.replace(one, forward=2 * one.forward) for one in every.parts)
    for others in ([], [found(parts=slower)], [found(update=2e-9)], [found(parts=())]):
        with pytest.raises(UsageError, match="times that the plan was made with are missing"):
            replayed(section, [GIVEN.graph, CLUSTER, *others])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"kind": "slow"}, "of the kind 'slow', but the topology has devices of the kind 'fast'"),
        ({"devices": 4}, "for hosts with 4 devices, but the topology's hosts have 2"),
        (
            {"parts": found().parts[2:]},
            f"lacks the times of 2 of the {len(WANTED)} parts .* such as 'product' from",
        ),
        ({"update": 0.0}, "update must be finite and above 0"),
    ],
)
def test_times_of_something_else(tmp_path: Path, changed: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        times.read(written(tmp_path, found(**changed)), GIVEN, CLUSTER, WAYS)


def test_hosts_with_different_numbers_of_devices(tmp_path: Path) -> None:
    fewer = msgspec.structs.replace(CLUSTER, devices=CLUSTER.devices[:3])
    with pytest.raises(UsageError, match="hosts have different numbers of devices"):
        times.read(written(tmp_path, found()), GIVEN, fewer, WAYS)


def own() -> Topology:
    """Two devices of this machine."""
    cluster = divided.cluster(1, 2)
    kind = msgspec.structs.replace(cluster.kinds[0], name=machine.local().name)
    return links.topology(2, Speeds(1e-4, 1e9, 1e9, 1e9), kind)


def test_devices_of_another_machine_are_not_measured_here(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    ways = space(divided.cluster(), (), None)
    given = Given(lenet(4))
    with pytest.raises(UsageError, match="devices are of the kind 'fast', but this machine is"):
        times.measured(path, given, divided.cluster(), ways, 60.0, print)
    assert not path.exists()


def test_what_jax_has_nothing_for_is_named_with_its_share(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    with pytest.raises(UsageError, match=r"'product' with JAX; they have 100\.0% of the op"):
        times.measured(path, GIVEN, own(), WAYS, 60.0, print)
    assert list(tmp_path.iterdir()) == []


@jaxes.needs_jax
@pytest.mark.jax
def test_what_is_measured_is_kept_and_not_measured_again(tmp_path: Path) -> None:
    path, cluster, given = tmp_path / "times.json", own(), Given(lenet(2))
    ways = space(cluster, (2,), "jax")
    said: list[str] = []
    with pytest.raises(DltuneError, match=r"0 of \d+ parts of operators timed") as ended:
        times.measured(path, given, cluster, ways, 1e-9, said.append)
    assert not isinstance(ended.value, UsageError)
    small = Given(msgspec.structs.replace(given.graph, operators=given.graph.operators[:2]))
    first = times.measured(path, small, cluster, ways, 600.0, said.append)
    assert (first.devices, first.whole) == (2, ())
    assert all(one.forward > 0 for one in first.parts)
    again = times.measured(path, small, cluster, ways, 600.0, said.append)
    assert documents.digest(again) == documents.digest(first)
    assert sum(one.startswith("timing ") for one in said) == 2
    # for a job, which one process can run on all cores as well
    whole = times.measured(path, small, cluster, ways, 600.0, said.append, runs=True)
    assert (len(whole.whole), whole.parts) == (1, first.parts)
    assert f"timing 1 part undivided on {len(os.sched_getaffinity(0))} cores" in said
    assert documents.digest(times.read(path, small, cluster, ways)) == documents.digest(first)
    with pytest.raises(UsageError, match="lacks"):
        times.read(path, given, cluster, ways)
