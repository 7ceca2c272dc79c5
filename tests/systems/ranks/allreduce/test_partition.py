"""Cores of components: who gets some of its own, and when nobody does."""

from __future__ import annotations

import itertools

import pytest
import synthetic
import synthetic_ranks
from hypothesis import given
from hypothesis import strategies as st

from dltune.schemas.machine import Machine
from dltune.schemas.plan import Uniform
from dltune.systems.ranks.allreduce.measurements import calls, observed
from dltune.systems.ranks.allreduce.model import (
    CorePartition,
    Model,
    Split,
    core_partition,
    divide,
    shares,
)
from dltune.systems.ranks.allreduce.section import Controller, RankCores
from dltune.systems.ranks.horovod.schema import Role


def planned(
    machine: Machine,
    *,
    local: int = 2,
    nodes: int = 1,
    controller: Controller = "mpi",
    cpu: dict[Role, float] | None = None,
    threads: Uniform | None = None,
) -> CorePartition:
    ranks = [
        synthetic_ranks.rank(k, size=nodes * local, local=local, controller=controller, cpu=cpu)
        for k in range(nodes * local)
    ]
    profile = synthetic_ranks.profile(machine, seconds=4e-3)
    seen = observed(synthetic_ranks.report(machine, ranks))
    model = Model(profile, calls(profile), seen)
    return core_partition(model, machine, threads, model.original)


def cores(rank: RankCores) -> set[int]:
    return {*rank.background, *rank.helpers, *rank.compute, *rank.input}


def test_two_ranks_on_two_cores_each_share_one() -> None:
    found = planned(synthetic.machine(2))
    assert found.cores == tuple(RankCores((k,), (k,), (k,), (k,)) for k in range(2))
    assert found.setting.threads == Uniform(1, 1)
    assert any("share its only core" in reason for reason in found.reasons)


@pytest.mark.parametrize("controller", ["mpi", "gloo"])
def test_ranks_have_whole_tiles_and_no_core_twice(controller: Controller) -> None:
    machine = synthetic.machine(8, tile=4, sockets=2)
    found = planned(machine, controller=controller)
    assert cores(found.cores[0]) == {0, 1, 2, 3}
    assert cores(found.cores[1]) == {4, 5, 6, 7}


@pytest.mark.parametrize(
    ("cores_there", "controller", "own"), [(16, "mpi", 1), (16, "gloo", 0), (2, "mpi", 0)]
)
def test_a_core_of_its_own_only_where_it_gains_more_than_it_costs(
    cores_there: int, controller: Controller, own: int
) -> None:
    """What spins takes a core's worth of 16 anyway; what blocks takes next to nothing; and of two
    cores, one is half of computing."""
    found = planned(synthetic.machine(cores_there), local=1, nodes=2, controller=controller)
    assert found.split.background == own
    gets = "gets" if own else "does not get"
    assert any(f"the background thread {gets} a separate core" in r for r in found.reasons)
    assert set(found.cores[0].background).isdisjoint(found.cores[0].compute) == bool(own)


def test_more_ranks_than_cores_share_them() -> None:
    found = planned(synthetic.machine(2), local=4)
    assert [cores(rank) for rank in found.cores] == [{0}, {1}, {0}, {1}]
    assert found.setting.pool.ranks == 2


def test_threads_of_the_main_plan_are_kept_within_the_cores() -> None:
    found = planned(synthetic.machine(4), threads=Uniform(4, 1))
    compute = found.cores[0].compute
    assert found.setting.threads == Uniform(len(compute), 1)


def test_input_that_keeps_cores_busy_may_have_them() -> None:
    """The split is the best of all that were predicted, input's own cores among them."""
    found = planned(
        synthetic.machine(16), local=1, cpu={"compute": 8.0, "background": 0.2, "input": 2.0}
    )
    assert found.split.compute + found.split.input + found.split.background == 16
    assert set(found.cores[0].compute).isdisjoint(found.cores[0].input) == (found.split.input > 0)


@given(
    st.integers(1, 12), st.integers(0, 1), st.integers(0, 4), st.integers(0, 3), st.integers(1, 9)
)
def test_a_rank_s_cores_are_divided_without_rest(
    compute: int, background: int, reading: int, offset: int, stride: int
) -> None:
    part = tuple(offset + stride * k for k in range(compute + background + reading))
    found = divide(part, Split(len(part), background, reading))
    assert cores(found) == set(part)
    assert found.helpers == found.background
    assert len(found.compute) == compute
    own = [found.compute]
    if background:
        own.append(found.background)
    else:
        assert found.background == found.compute
    if reading:
        own.append(found.input)
    else:
        assert found.input == found.compute
    assert all(set(a).isdisjoint(b) for a, b in itertools.combinations(own, 2))


@given(st.integers(1, 12), st.integers(1, 12))
def test_shares_of_the_node(local: int, count: int) -> None:
    machine = synthetic.machine(count, tile=2)
    parts = shares(machine, local)
    assert len(parts) == local
    assert all(parts)
    if local <= count:
        assert sorted(itertools.chain(*parts)) == list(range(count))
