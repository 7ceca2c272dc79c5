"""What the ranks of a job are told, and what is known of them afterwards."""

from __future__ import annotations

import os
import subprocess

import pytest
import synthetic

from dltune.base.errors import UsageError
from dltune.job import protocol
from dltune.job.rank_layout import Shares

MACHINE = synthetic.machine(4)


def python(pid: int, **environment: str) -> protocol.Python:
    return protocol.Python(pid, ["python"], "3.11", environment)


def test_each_rank_has_its_part() -> None:
    shares = Shares(MACHINE)
    told = [
        shares.answer(python(10 + rank, HOROVOD_LOCAL_RANK=str(rank), HOROVOD_LOCAL_SIZE="2"))
        for rank in (0, 1)
    ]
    assert told == [{"cpus": [0, 1]}, {"cpus": [2, 3]}]
    part, rank = shares.of(11)
    assert (part.cores, rank) == (MACHINE.cores[2:], 1)
    assert shares


def test_what_a_rank_has_forked_has_its_part() -> None:
    shares = Shares(MACHINE)
    rank = {"HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "2"}
    shares.answer(python(os.getpid(), **rank))
    with subprocess.Popen(["sleep", "60"]) as child:
        assert shares.of(child.pid) == shares.of(os.getpid())
        child.kill()
    assert shares.of(1) == (MACHINE, None)


def test_a_job_without_ranks_has_all() -> None:
    shares = Shares(MACHINE)
    assert shares.answer(python(10)) == {}
    alone = python(11, HOROVOD_LOCAL_RANK="0", HOROVOD_LOCAL_SIZE="1")
    assert shares.answer(alone) == {}
    assert shares.of(10) == shares.of(11) == (MACHINE, None)
    assert not shares


def test_variables_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="HOROVOD_LOCAL_SIZE"):
        Shares(MACHINE).answer(python(10, HOROVOD_LOCAL_RANK="2", HOROVOD_LOCAL_SIZE="2"))
