from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dltune.base.documents import struct_faults
from dltune.base.errors import UsageError
from dltune.job.rank_layout import Rank, local_rank, rank_cores
from dltune.schemas.machine import SCHEMA, Core, Machine
from dltune.system.topology import builtin_machine

KNL = builtin_machine("knl-7250")


def found(**environ: str) -> tuple[int, int] | None:
    rank = local_rank(environ)
    return None if rank is None else (rank.rank, rank.size)


@pytest.mark.parametrize(
    ("rank", "size"),
    [
        ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
        ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
        ("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"),
        ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
        ("SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
    ],
)
def test_every_launcher(rank, size):
    assert found(**{rank: "1", size: "4"}) == (1, 4)
    assert local_rank({rank: "1", size: "4"}).variables == (rank, size)


def test_no_launcher():
    assert local_rank({"PATH": "/bin", "LOCAL_RANK": ""}) is None


@pytest.mark.parametrize(("node", "size"), [("0", 2), ("2", 2), ("3", 1)])
def test_slurm_tells_the_tasks_of_each_node(node, size):
    tasks = {"SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_NODEID": node}
    assert found(SLURM_LOCALID="0", **tasks) == (0, size)


def test_slurm_step_with_a_fixed_number_of_tasks():
    assert found(SLURM_LOCALID="3", SLURM_STEP_ID="0", SLURM_NTASKS_PER_NODE="4") == (3, 4)


def test_a_slurm_batch_script_is_alone_whatever_its_steps_will_be():
    assert found(SLURM_LOCALID="0", SLURM_NTASKS_PER_NODE="4") is None


def test_a_launcher_that_starts_another_gives_way():
    slurm = {"SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_NODEID": "0"}
    ompi = {"OMPI_COMM_WORLD_LOCAL_RANK": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
    assert found(**slurm, **ompi) == (2, 4)
    assert found(**slurm) == (0, 1)


def test_launchers_that_agree():
    ompi = {"OMPI_COMM_WORLD_LOCAL_RANK": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
    assert found(HOROVOD_LOCAL_RANK="2", HOROVOD_LOCAL_SIZE="4", **ompi) == (2, 4)


def test_a_local_rank_without_a_size_tells_nothing():
    """As Lightning sets it; a launcher that tells more counts."""
    assert local_rank({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}) is None
    slurm = {"SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2"}
    assert found(LOCAL_RANK="1", **slurm) == (1, 2)


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"LOCAL_WORLD_SIZE": "2"}, ["LOCAL_RANK", "LOCAL_WORLD_SIZE"]),
        ({"HOROVOD_LOCAL_SIZE": "2"}, ["HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"]),
        ({"LOCAL_RANK": "one", "LOCAL_WORLD_SIZE": "2"}, ["LOCAL_RANK='one'"]),
        ({"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "2"}, ["LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"]),
        ({"LOCAL_RANK": "-1", "LOCAL_WORLD_SIZE": "2"}, ["LOCAL_RANK=-1"]),
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "0"}, ["LOCAL_WORLD_SIZE=0"]),
        ({"SLURM_LOCALID": "0", "SLURM_STEP_ID": "0"}, ["SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"]),
        (
            {"SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "2,1"},
            ["SLURM_STEP_TASKS_PER_NODE=2,1", "SLURM_NODEID"],
        ),
        (
            {"SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_NODEID": "2"},
            ["SLURM_STEP_TASKS_PER_NODE=2(x2)", "SLURM_NODEID=2"],
        ),
        (
            {"SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "two"},
            ["SLURM_STEP_TASKS_PER_NODE=two"],
        ),
        (
            {
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "2",
                "HOROVOD_LOCAL_RANK": "1",
                "HOROVOD_LOCAL_SIZE": "2",
            },
            ["LOCAL_RANK=0", "HOROVOD_LOCAL_RANK=1"],
        ),
    ],
)
def test_inconsistent_values_name_their_variables(environ, named):
    with pytest.raises(UsageError) as error:
        local_rank(environ)
    for name in named:
        assert name in str(error.value)


tiles = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def machine(sizes: list[int]) -> Machine:
    cores = [tile for tile, size in enumerate(sizes) for _ in range(size)]
    return Machine(
        SCHEMA, "a machine", tuple(Core((cpu,), tile, 0, 0) for cpu, tile in enumerate(cores))
    )


def parts(on: Machine, size: int) -> list[list[int]]:
    """CPU numbers of each rank."""
    return [
        [core.cpus[0] for core in rank_cores(on, Rank(rank, size, ())).cores]
        for rank in range(size)
    ]


@given(tiles, st.data())
def test_parts_are_contiguous_even_and_on_tile_borders_where_they_can_be(sizes, data):
    on = machine(sizes)
    size = data.draw(st.integers(1, len(on.cores)))
    found = parts(on, size)
    assert [cpu for part in found for cpu in part] == list(range(len(on.cores)))
    lengths = [len(part) for part in found]
    assert max(lengths) - min(lengths) <= 1
    # against every order of the same lengths
    edges = set(itertools.accumulate(sizes))
    met = len(edges & set(itertools.accumulate(lengths)))
    assert met == max(
        len(edges & set(itertools.accumulate(min(lengths) + (n in large) for n in range(size))))
        for large in itertools.combinations(range(size), lengths.count(min(lengths) + 1))
    )


@given(tiles, st.integers(1, 12))
def test_more_ranks_than_cores_share_in_turn(sizes, beyond):
    on = machine(sizes)
    cores = len(on.cores)
    found = parts(on, cores + beyond)
    assert found == [[rank % cores] for rank in range(cores + beyond)]


def test_knl_between_four_ranks():
    shares = [rank_cores(KNL, Rank(rank, 4, ())) for rank in range(4)]
    assert [len(part.cores) for part in shares] == [17] * 4
    assert all(struct_faults("", part) == [] for part in shares)
    halves = [rank_cores(KNL, Rank(rank, 2, ())) for rank in range(2)]
    assert [[len(tile) for tile in half.tiles] for half in halves] == [[2] * 17] * 2
    assert halves[0].memory == 8 * 2**30


def test_the_quota_is_divided():
    on = Machine(SCHEMA, "a machine", tuple(Core((n,), 0, 0, 0) for n in range(4)), quota=3.0)
    assert rank_cores(on, Rank(0, 2, ())).quota == 1.5
