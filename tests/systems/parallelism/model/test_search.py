"""The search over strategies: the same wherever its chains walk."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import msgspec
import pytest

from dltune.base.errors import UsageError
from dltune.systems.parallelism.inputs import p100
from dltune.systems.parallelism.model import bound
from dltune.systems.parallelism.model.engine import Chain, Engine, Leg, Walk, workers
from dltune.systems.parallelism.model.problem import Problem, mesh, problem, roofline, soap
from dltune.systems.parallelism.model.search import (
    Found,
    data_parallel,
    expert,
    random_strategy,
    search,
    single,
)
from dltune.systems.parallelism.networks import NETWORKS

PATIENCE = 300.0  # seconds, for what takes a few where a machine is not busy


@pytest.fixture(scope="module")
def lenet() -> Problem:
    return problem(NETWORKS["LeNet"](), p100(4), soap, roofline)


def searched(problem: Problem, processes: int = 1, scheduler: str | None = None) -> Found:
    starts = {"data parallel": data_parallel(problem), "one": single(problem)}
    with workers(Engine(problem), processes, scheduler) as those:
        return search(problem, starts, those, seed=7, proposals=3_000)


@pytest.fixture(scope="module")
def alone(lenet: Problem) -> Found:
    return searched(lenet)


def test_what_it_says_is_what_the_simulation_says(lenet: Problem, alone: Found) -> None:
    engine = Engine(lenet)
    assert engine.simulate(alone.strategy) == alone.time
    for strategy, time in alone.starts.values():
        assert engine.simulate(strategy) == time
        assert alone.time <= time
    assert 2_000 < alone.proposals <= 3_000
    assert alone.settled
    for operator, catalog in enumerate(lenet.catalogs):
        for choice in range(len(catalog)):
            other = (*alone.strategy[:operator], choice, *alone.strategy[operator + 1 :])
            assert engine.simulate(other) >= alone.time


def test_the_same_on_several_processes(lenet: Problem, alone: Found) -> None:
    for processes in (2, 8):
        theirs = searched(lenet, processes)
        assert (theirs.strategy, theirs.time) == (alone.strategy, alone.time)


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    monkeypatch.setattr("dltune.systems.parallelism.model.engine.PATIENCE", PATIENCE)
    waits = {f"distributed.comm.timeouts.{what}": f"{PATIENCE} s" for what in ("connect", "tcp")}
    with (
        dask.config.set(waits),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
    ):
        yield cluster.scheduler_address


def test_rates_in_the_wrong_unit_are_refused() -> None:
    """As in Tera and Giga: nanoseconds would not fit into 64 bits."""
    good = p100(4)
    kinds = tuple(msgspec.structs.replace(kind, flops=0.1, bandwidth=0.1) for kind in good.kinds)
    with pytest.raises(UsageError, match="s on a 'P100'"):
        problem(NETWORKS["LeNet"](), msgspec.structs.replace(good, kinds=kinds), soap, roofline)


def test_the_same_on_a_cluster(lenet: Problem, alone: Found, scheduler: str) -> None:
    theirs = searched(lenet, scheduler=scheduler)
    assert (theirs.strategy, theirs.time) == (alone.strategy, alone.time)


def test_a_scheduler_that_does_not_answer(lenet: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("dltune.systems.parallelism.model.engine.PATIENCE", 0.5)
    with pytest.raises(UsageError, match=r"tcp://127\.0\.0\.1:9 does not answer"):
        searched(lenet, scheduler="tcp://127.0.0.1:9")


class Clocked:
    """Chains whose proposals take `EACH` seconds of a clock that nothing else moves."""

    EACH = 1e-4
    count = 1

    def __init__(self, engine: Engine) -> None:
        self.engine, self.now = engine, 0.0

    def walk(self, legs: Sequence[Leg]) -> list[Walk]:
        return [self._one(start, chain) for start, chain in legs]

    def _one(self, start: tuple[int, ...], chain: Chain) -> Walk:
        room = round(chain.seconds / self.EACH) if chain.seconds else chain.proposals
        limited = dataclasses.replace(chain, proposals=min(chain.proposals, room), seconds=0.0)
        walk = self.engine.walk(start, limited)
        took = self.EACH * max(walk.proposals, 1)
        self.now += took
        return dataclasses.replace(walk, seconds=took)


def test_seconds_are_kept(lenet: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a clock of its own: on a busy machine the seconds may pass without a proposal."""
    starts, those = {"data parallel": data_parallel(lenet)}, Clocked(Engine(lenet))
    clock = SimpleNamespace(monotonic=lambda: those.now)
    monkeypatch.setattr("dltune.systems.parallelism.model.search.time", clock)
    found = search(lenet, starts, those, seed=1, seconds=0.5)
    assert found.time < found.starts["data parallel"][1]
    # half of them without a gain are enough; each walk may end a rounding later
    assert 0.25 <= found.seconds <= 0.5 + 100 * Clocked.EACH
    assert found.seconds == those.now


def test_a_chain_walks_for_its_seconds(lenet: Problem) -> None:
    walk = Engine(lenet).walk(data_parallel(lenet), Chain(1, seconds=0.05))
    assert walk.seconds >= 0.05
    assert walk.best_time <= Engine(lenet).simulate(data_parallel(lenet))


def test_what_people_do() -> None:
    space = functools.partial(soap, hosts=2)
    recurrent = problem(NETWORKS["RNNLM"](), p100(8), space, roofline)
    by_layer = {
        operator.block: set(catalog[at].devices(8))
        for operator, catalog, at in zip(
            recurrent.graph.operators,
            recurrent.catalogs,
            expert(recurrent),
            strict=True,
        )
    }
    # one device of each of two hosts, and neighbouring layers on others
    assert all(len(devices) == 2 for name, devices in by_layer.items() if name)
    layers = [devices for name, devices in by_layer.items() if name]
    assert all(a.isdisjoint(b) for a, b in itertools.pairwise(layers))
    convolutions = problem(NETWORKS["AlexNet"](), p100(4), soap, roofline)
    chosen = expert(convolutions)
    of = [catalog[at] for catalog, at in zip(convolutions.catalogs, chosen, strict=True)]
    assert of[1].degrees[0] == 4
    assert of[-1].degrees[:2] == (1, 4)


def test_on_a_mesh_nothing_is_on_fewer_devices() -> None:
    meshed = problem(
        NETWORKS["LeNet"](), p100(4), lambda operator, _: mesh(operator, (2, 2)), roofline
    )
    for strategy in (data_parallel(meshed), single(meshed)):
        assert all(
            sorted(catalog[at].devices(4)) == [0, 1, 2, 3]
            for catalog, at in zip(meshed.catalogs, strategy, strict=True)
        )


@pytest.mark.parametrize(
    "seeds", [range(2), pytest.param(range(20), marks=pytest.mark.proof)], ids=["some", "twenty"]
)
@pytest.mark.parametrize("name", ["LeNet", "RNNLM"])
def test_every_start_reaches_the_proven_optimum(name: str, seeds: range) -> None:
    """Section 8.4's cases, on four devices."""
    graph = NETWORKS["RNNLM"](steps=2) if name == "RNNLM" else NETWORKS[name]()
    posed = problem(graph, p100(4), soap, roofline)
    proven = bound.optimum(posed, data_parallel(posed), 10 * PATIENCE)
    assert proven.proven
    engine = Engine(posed)
    for seed in seeds:
        starts = (
            data_parallel(posed),
            single(posed),
            expert(posed),
            random_strategy(posed, seed),
        )
        for start in starts:
            walk = engine.walk(start, Chain(seed, temperature=0.02, proposals=20_000))
            assert walk.best_time == proven.time


@pytest.mark.proof
@pytest.mark.parametrize("devices", [2, 4, 8])
@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "LeNet"])
def test_no_neighbour_is_shorter(name: str, devices: int) -> None:
    """Section 8.4: the six networks, all neighbours of the strategy."""
    hosts = -(-devices // 4)
    posed = problem(NETWORKS[name](), p100(devices), functools.partial(soap, hosts=hosts), roofline)
    starts = {"data parallel": data_parallel(posed)}
    with workers(Engine(posed), 1, None) as those:
        found = search(posed, starts, those, seed=1, proposals=300_000)
    assert found.settled
    assert found.time <= found.starts["data parallel"][1]
