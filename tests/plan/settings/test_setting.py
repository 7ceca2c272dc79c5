from __future__ import annotations

import pytest

from dltune.base.errors import UsageError
from dltune.plan.settings import setting

JOB = ("horovodrun", "-np", "{ranks:2}", "python", "train.py", "--batch={batch:256}", "--n", "2")


def test_a_job_of_its_own_number_of_ranks_is_started_as_the_user_wrote_it():
    own = ("horovodrun", "-np", "2", "python", "train.py", "--batch=128", "--n", "2")
    assert setting.ranks(JOB) == 2
    assert setting.filled(JOB) == setting.filled(JOB, 2) == own


def test_the_global_batch_stays_whatever_the_number_of_ranks():
    for number in (1, 2, 4, 8):
        words = setting.filled(JOB, number)
        batch = int(words[5].removeprefix("--batch="))
        assert batch * int(words[2]) == 256


def test_a_command_without_placeholders_is_left_alone():
    words = ("python", "-c", "print({'a': 1}, f'{x:3}', {3})")
    assert setting.ranks(words) is None
    assert setting.filled(words) == words


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("horovodrun", "-np", "{ranks}"), r"\{ranks\}.*no number"),
        (("horovodrun", "-np", "{ranks:two}"), r"\{ranks:two\}.*no number"),
        (("horovodrun", "-np", "{ranks:2}", "{batch:}"), r"\{batch:\}.*no number"),
        (("python", "{batch:64}"), "needs {ranks:N}"),
        (("a", "{ranks:2}", "{ranks:4}"), "must be one number above 0, got 2, 4"),
        (("a", "{ranks:0}"), "must be one number above 0, got 0"),
        (("a", "{ranks:3}", "{batch:64}"), "not a multiple of its 3 ranks"),
    ],
)
def test_placeholders_that_make_no_sense_are_refused(words, complaint):
    with pytest.raises(UsageError, match=complaint):
        setting.filled(words)


def test_who_starts_ranks_is_known_by_name():
    assert setting.starts_ranks(("/opt/mpi/bin/mpirun", "-np", "2"))
    assert setting.starts_ranks(("horovodrun", "-np", "2"))
    assert setting.starts_ranks(("env/bin/torchrun", "train.py"))
    assert setting.starts_ranks(("accelerate", "launch", "--num_processes", "2", "train.py"))
    assert not setting.starts_ranks(("accelerate", "launch", "train.py", "--num_processes", "8"))
    assert setting.starts_ranks(("python3", "-u", "-m", "torch.distributed.run", "train.py"))
    assert not setting.starts_ranks(("python", "-m", "train", "torchrun"))
    assert not setting.starts_ranks(("python", "-m"))
    assert not setting.starts_ranks(("python", "mpirun.py"))
    assert setting.horovodrun(("/x/bin/horovodrun",))
    assert not setting.open_mpi(("python", "train.py"))
    assert not setting.open_mpi(("horovodrun", "--gloo", "-np", "2"))


@pytest.mark.parametrize(
    ("told", "open_mpi"), [("mpirun (Open MPI) 4.1.4", True), ("HYDRA", False)]
)
def test_open_mpi_is_told_from_others_by_what_it_says(tmp_path, told, open_mpi):
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(f"#!/bin/sh\necho '{told}'\n")
    mpirun.chmod(0o755)
    assert setting.open_mpi((str(mpirun), "-np", "2", "python")) is open_mpi
