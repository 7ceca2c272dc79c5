"""A rank among all ranks, from what launchers tell."""

from __future__ import annotations

import pytest

from dltune.base.errors import UsageError
from dltune.job.rank_layout import WORLD_VARIABLES, Rank, is_rank, world


def test_without_a_launcher_there_is_one_rank() -> None:
    assert world({}) == Rank(0, 1)
    assert world({"HOROVOD_RANK": ""}) == Rank(0, 1)
    # a batch script has the variable without being a step
    assert world({"SLURM_PROCID": "0"}) == Rank(0, 1)


@pytest.mark.parametrize(("rank", "size"), WORLD_VARIABLES)
def test_each_launcher_is_understood(rank: str, size: str) -> None:
    assert world({rank: "3", size: "8"}) == Rank(3, 8)


def test_a_launcher_within_another_gives_way_to_the_larger() -> None:
    environ = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}
    environ |= {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}
    assert world(environ) == Rank(2, 4)
    # Open MPI under Horovod tells the same twice
    environ |= {"HOROVOD_RANK": "2", "HOROVOD_SIZE": "4"}
    assert world(environ) == Rank(2, 4)


def test_slurm_gives_way_to_what_it_starts_on_each_node() -> None:
    environ = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}
    torchrun = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert world(environ | torchrun) == Rank(5, 8)
    assert is_rank(environ | torchrun)
    mpirun = {"OMPI_COMM_WORLD_RANK": "6", "OMPI_COMM_WORLD_SIZE": "8"}
    assert world(environ | mpirun) == Rank(6, 8)
    assert world(environ) == Rank(1, 2)


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"RANK": "1"}, "RANK=1"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK=one"),
        (
            {"RANK": "2", "WORLD_SIZE": "2"},
            "the rank must be at least 0 and below the number of ranks",
        ),
        ({"RANK": "1", "WORLD_SIZE": "2", "PMI_RANK": "0", "PMI_SIZE": "2"}, "two different ranks"),
    ],
)
def test_what_cannot_be_is_told(environ: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        world(environ)
