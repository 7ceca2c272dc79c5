"""What a process's environment tells of a rank."""

from __future__ import annotations

import os

import pytest

from dltune.system.proc.process import Mapping
from dltune.systems.ranks.horovod.watch import libraries, ranks


def test_settings_are_what_a_person_chose():
    told = {
        "HOROVOD_CYCLE_TIME": "5",
        "HOROVOD_RANK": "1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "1152",
        "HOROVOD_SECRET_KEY": "hidden",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_orte_app_num": "0",
        "PATH": "/bin",
    }
    assert ranks.settings(told) == {
        "HOROVOD_CYCLE_TIME": "5",
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }


@pytest.mark.parametrize(
    ("told", "seconds"),
    [({}, 1e-3), ({"HOROVOD_CYCLE_TIME": "2.5"}, 2.5e-3), ({"HOROVOD_CYCLE_TIME": "x"}, 1e-3)],
)
def test_the_cycle_time_in_seconds(told, seconds):
    assert ranks.cycle_time(told) == pytest.approx(seconds)


TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
SRUN = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"}
SRUN["SLURM_STEP_TASKS_PER_NODE"] = "1(x2)"
LIBTORCH = [Mapping(0, 1, 0, True, 0, 0, "/site-packages/torch/lib/libtorch_cpu.so")]


@pytest.mark.parametrize(
    ("told", "rank"),
    [
        ({**TORCHRUN, **SRUN}, (3, 8, 1, 4)),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, (1, 2, 0, 1)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2, 0, 1)),
    ],
)
def test_a_rank_of_pytorch_is_what_pytorch_reads(told, rank):
    found = libraries.find_torch(os.getpid(), LIBTORCH, told)
    place = ranks.identify(os.getpid(), told, LIBTORCH, found)
    assert (place.rank, place.size, place.local_rank, place.local_size) == rank


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"RANK": "x", "WORLD_SIZE": "2"},
        {"RANK": "5", "WORLD_SIZE": "2"},
        {"OMPI_COMM_WORLD_RANK": "1"},
        {**TORCHRUN, "LOCAL_RANK": "9"},
    ],
)
def test_who_is_no_rank_of_pytorch(told):
    assert libraries.find_torch(os.getpid(), LIBTORCH, told) is None
