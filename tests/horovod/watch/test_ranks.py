"""What a process's environment tells of a rank."""

from __future__ import annotations

import pytest

from dltune.horovod.watch import ranks


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
