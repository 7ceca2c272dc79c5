"""From a network and devices to a section."""

from __future__ import annotations

from random import Random

import divided
import msgspec
import numpy as np
import parallelism_oracle
import pytest
from parallelism_problems import SHAPES, random_graph, random_topology

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.systems.parallelism.decide import (
    Effort,
    decide,
    decoded,
    posed,
    require_faster,
    require_mesh,
    space,
    tied,
)
from dltune.systems.parallelism.emit import expressed
from dltune.systems.parallelism.inputs import Given, requests, undivided
from dltune.systems.parallelism.model.engine import Engine
from dltune.systems.parallelism.model.problem import (
    REPLICA,
    Problem,
    Strategy,
    problem,
    roofline,
)
from dltune.systems.parallelism.model.search import data_parallel, expert, least_sum, single
from dltune.systems.parallelism.schemas import operators
from dltune.systems.parallelism.schemas.operators import Dimension, PartTime
from dltune.systems.parallelism.schemas.strategy import ALL_CORES, ONE_PROCESS, Parallelism
from dltune.systems.parallelism.schemas.topology import Topology


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


def oracle(whole: Problem, strategy: Strategy) -> int:
    """Nanoseconds of a step, slowly."""
    kinds = [kind.name for kind in whole.topology.kinds]
    ways = whole.routes
    devices = parallelism_oracle.Devices(
        [kinds.index(one.kind) for one in whole.topology.devices],
        [int(one.host.removeprefix("h")) for one in whole.topology.devices],
        ways.channel.tolist(),
        np.rint(ways.latency * 1e9).astype(int).tolist(),
        (ways.per_byte * 1e9).tolist(),
        whole.update * 1e9,
        *(whole.all_reduce, whole.all_to_all),
    )
    choices = [
        parallelism_oracle.Choice(
            whole.catalogs[n][place],
            tuple(map(int, whole.forward[n][place])),
            tuple(map(int, whole.backward[n][place])),
        )
        for n, place in enumerate(strategy)
    ]
    tasks = parallelism_oracle.tasks(whole.graph, choices, devices)
    return parallelism_oracle.makespan(parallelism_oracle.simulated(tasks))


def test_no_plan_of_a_consumer_is_worse_than_what_people_would_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor than dynamic programming, all of them with weights divided in one way as in the plan."""
    monkeypatch.setattr("dltune.systems.parallelism.decide.BOUND_SECONDS", 0.0)
    untied = 0
    for seed in range(200):
        random = Random(seed)
        graph, topology = random_graph(random), random_topology(random)
        fast = tuple(
            msgspec.structs.replace(one, flops=1e9, bandwidth=1e9) for one in topology.kinds
        )
        topology = msgspec.structs.replace(topology, kinds=fast)
        shape = SHAPES[len(topology.devices)] if len(topology.devices) > 1 else ()
        given = Given(graph)
        found = decide(given, topology, "t", "jax", shape, Effort(proposals=20, seed=seed)).section
        whole = posed(given, topology, shape, "jax")
        engine = Engine(whole)
        written = decoded(found, whole)
        assert tied(whole, engine, written, shape)[0] == written
        time = oracle(whole, written)
        assert time == round(found.seconds * 1e9)
        for start in (data_parallel, expert, single, least_sum):
            strategy = tied(whole, engine, start(whole), shape)[0]
            untied += strategy != start(whole)
            assert time <= oracle(whole, strategy), (seed, start.__name__)
    assert untied > 20


def test_one_process_that_has_all_is_compared() -> None:
    """On one of the devices its ops take their times one after the other, and so do the updates."""
    times = divided.times()
    wide = tuple(msgspec.structs.replace(one, forward=1e-3, backward=2e-3) for one in times.parts)
    times = msgspec.structs.replace(times, parts=wide, update=1e-11)
    given = Given(divided.network(), times=times)
    found = decide(given, divided.cluster(), "small", "jax", (4,), Effort(proposals=10)).section
    alone = {one.name: one for one in found.baselines}[ONE_PROCESS]
    operators = [one for one in given.graph.operators if one.inputs]
    updated = sum(weights.bytes for weights in given.graph.weights)
    assert alone.seconds == pytest.approx(len(operators) * 3e-3 + updated * times.update, rel=1e-3)
    assert alone.bytes == 0
    assert ALL_CORES not in {one.name for one in found.baselines}  # nothing is known of that
    assert found.seconds >= alone.seconds  # whatever it is divided into takes as long
    with pytest.raises(UsageError, match=r"no plan: one process on one device .* 12\.\d+ ms") as no:
        require_faster(found)
    assert no.value.remedy == "run the job as it is, or plan for a larger batch or more devices"
    require_faster(divided.section())  # of no job


def test_one_process_on_all_cores_of_a_host_is_compared_where_its_times_are_known() -> None:
    times = divided.times()
    slow = tuple(msgspec.structs.replace(one, forward=1.0, backward=1.0) for one in times.parts)
    parts = requests(divided.network(), 1, undivided)

    def decided(seconds: float, devices: Topology) -> Parallelism:
        fast = tuple(
            PartTime(one.type, one.inputs, one.output, seconds, seconds, one.data) for one in parts
        )
        given = Given(
            divided.network(), times=msgspec.structs.replace(times, parts=slow, whole=fast)
        )
        mesh = (len(devices.devices),)
        return decide(given, devices, "small", "torch", mesh, Effort(proposals=10)).section

    found = decided(0.01, divided.cluster())
    together = {one.name: one for one in found.baselines}[ALL_CORES]
    assert together.seconds == pytest.approx(4 * 0.02, rel=0.1)
    with pytest.raises(UsageError, match="no plan: one process on all cores of a host"):
        require_faster(found)
    # where each host has one device, this is the device
    alone = decided(0.01, divided.cluster(4, 1))
    assert ALL_CORES not in {one.name for one in alone.baselines}


def test_a_strategy_that_is_another_s_on_a_mesh_says_so() -> None:
    """An expert's layers of a recurrent network each have a device, which no mesh expresses."""
    found = divided.section(consumer="jax", mesh=(4,))
    same = {one.name: one.same for one in found.baselines}
    assert same["expert"] == "data parallel"
    assert same["data parallel"] == ""
    anywhere = {one.name: one.same for one in divided.section().baselines}
    assert anywhere["expert"] == ""


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
