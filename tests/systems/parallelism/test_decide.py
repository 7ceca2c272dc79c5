"""From a network and devices to a section."""

from __future__ import annotations

import divided
import msgspec
import pytest

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.systems.parallelism.decide import Effort, decide, require_mesh, space, tied
from dltune.systems.parallelism.emit import expressed
from dltune.systems.parallelism.inputs import Given
from dltune.systems.parallelism.model.engine import Engine
from dltune.systems.parallelism.model.problem import REPLICA, problem, roofline
from dltune.systems.parallelism.schemas import operators
from dltune.systems.parallelism.schemas.operators import Dimension


def test_a_plan_is_sound_and_no_worse_than_what_it_stands_beside() -> None:
    found = divided.section()
    assert struct_faults("parallelism", found) == []
    names = [one.name for one in found.baselines]
    assert names[:1] == ["data parallel"]
    assert names[-1:] == ["dynamic programming"]
    assert found.seconds <= min(one.seconds for one in found.baselines)
    assert found.bound is not None
    assert found.bound <= found.seconds
    assert {one.block for one in found.operators} == {"", "steps"}


def test_a_single_device_sends_nothing() -> None:
    single = {one.name: one for one in divided.section().baselines}["single device"]
    assert single.bytes == 0


def test_with_so_many_proposals_the_seed_decides() -> None:
    one, again = divided.section(seed=1), divided.section(seed=1)
    assert one.operators == again.operators
    assert (one.seconds, one.proposals) == (again.seconds, again.proposals)


@pytest.mark.parametrize("mesh", [(4,), (2, 2)])
def test_a_consumer_can_express_its_plan(mesh: tuple[int, ...]) -> None:
    found = divided.section(consumer="keras", mesh=mesh)
    assert struct_faults("parallelism", found) == []
    assert expressed(found)["mesh"] == [*mesh]
    assert {len(one.devices) for one in found.operators} == {4}


def test_a_job_on_several_hosts_is_told_where_each_device_is() -> None:
    assert divided.section(consumer="jax", mesh=(4,)).hosts == ("h0", "h0", "h1", "h1")
    assert divided.section().hosts == ()
    together = divided.section(devices=divided.cluster(1, 2), consumer="jax", mesh=(2,))
    assert together.hosts == ()


def test_a_consumer_divides_evenly_and_no_pixels_beside_an_idle_axis() -> None:
    picture = (
        Dimension("sample", 6, "sample"),
        Dimension("height", 8, "attribute"),
        Dimension("width", 8, "attribute"),
        Dimension("channel", 6, "parameter"),
    )
    convolution = operators.Operator("conv", "conv 3x3", picture, 1.0, 2.0)
    shape, topology = (2, 2), divided.cluster()
    ways = space(topology, shape, "jax")(convolution, 4)
    assert ways
    # 4 does not divide 6, in samples or in channels
    assert all(one.degrees[0] <= 2 and one.degrees[3] <= 2 for one in ways)
    pixels = [one for one in ways if one.degrees[1] * one.degrees[2] > 1]
    assert pixels
    assert all(one.replicas == 1 for one in pixels)
    assert any(one.replicas > 1 for one in ways)


@pytest.mark.parametrize(
    ("type", "learns"), [("conv 3x3", True), ("layer_norm", False), ("lstm", False)]
)
def test_pytorch_divides_no_pixels_and_only_what_these_layers_learn(
    type: str, learns: bool
) -> None:
    picture = (
        Dimension("sample", 8, "sample"),
        Dimension("height", 8, "attribute"),
        Dimension("width", 8, "attribute"),
        Dimension("channel", 8, "parameter"),
    )
    layer = operators.Operator("layer", type, picture, 1.0, 2.0)
    ways = space(divided.cluster(), (2, 2), "torch")(layer, 4)
    assert all(one.degrees[1] * one.degrees[2] == 1 for one in ways)
    assert any(one.degrees[3] > 1 for one in ways) is learns
    words = operators.Operator("words", type, picture[:1] + picture[2:], 1.0, 2.0)
    ways = space(divided.cluster(), (2, 2), "torch")(words, 4)
    assert any(one.degrees[1] > 1 for one in ways)


def test_one_device_is_no_mesh() -> None:
    found = divided.section(devices=divided.cluster(1, 1), consumer="jax")
    assert struct_faults("parallelism", found) == []
    assert (found.mesh, found.bytes) == ((), 0)


def test_operators_of_one_weight_are_divided_alike_on_a_mesh() -> None:
    shape = (4,)
    whole = problem(
        divided.network(), divided.cluster(), space(divided.cluster(), shape, "keras"), roofline
    )
    steps = [n for n, one in enumerate(whole.graph.operators) if one.block]
    unlike = [0] * len(whole.catalogs)
    catalog = whole.catalogs[steps[0]]
    by_channel = next(n for n, one in enumerate(catalog) if one.degrees[1] == 4)
    by_sample = next(n for n, one in enumerate(catalog) if one.degrees[0] == 4)
    for n in steps:
        unlike[n] = by_sample
    unlike[steps[0]] = by_channel
    engine = Engine(whole)
    strategy, time = tied(whole, engine, tuple(unlike), shape)
    assert engine.simulate(strategy) == time
    chosen = {whole.configuration(strategy, n) for n in steps}
    assert len(chosen) == 1
    every = []
    for place in range(len(catalog)):
        changed = [place if n in steps else at for n, at in enumerate(unlike)]
        every.append(engine.simulate(tuple(changed)))
    assert time == min(every)
    alike = [by_sample if n in steps else at for n, at in enumerate(unlike)]
    assert tied(whole, engine, tuple(alike), shape)[0] == tuple(alike), "left as it is"


def test_an_operator_that_nothing_divides() -> None:
    graph = divided.network()
    whole = Dimension("all", 4, "whole")
    one = msgspec.structs.replace(graph.operators[0], dimensions=(whole,), name="odd")
    lone = operators.Operators(operators.SCHEMA, "lone", (one,))
    found = decide(
        Given(lone), divided.cluster(), "small", "keras", (4,), Effort(proposals=10)
    ).section
    assert found.operators[0].axes == (None,), "each device has all of it"
    assert REPLICA not in found.operators[0].axes


def test_a_mesh_of_other_devices() -> None:
    with pytest.raises(UsageError, match="the mesh 2x3 has 6 devices, but the topology has 4"):
        require_mesh((2, 3), divided.cluster())
