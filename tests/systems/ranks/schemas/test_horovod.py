"""What can and cannot be in a horovod document."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dltune.base.errors import UsageError
from dltune.schemas.diagnosis import Finding
from dltune.systems.ranks.horovod import schema

THREAD = schema.ThreadUse(7, "python", "background", 0.1, 0.1, 0.0, 0.0, 1.0, 0.0, (0,))
RANK = schema.Rank(
    rank=0,
    size=2,
    local_rank=0,
    local_size=2,
    host="node",
    pid=5,
    seconds=10.0,
    controller="gloo",
    horovod="0.28.1",
    mpi=None,
    settings={},
    evidence=("stack",),
    background=7,
    cpu=0.5,
    cpus=(0,),
    bound=False,
    threads=(THREAD,),
    cycles=None,
    ended=None,
    unseen=(),
)


def report(*ranks: schema.Rank) -> schema.Horovod:
    return schema.Horovod(schema.SCHEMA, "", "", (), "", "", {"node": 2}, False, ranks, None, ())


def changed(**also: Any) -> schema.Rank:
    return msgspec.structs.replace(RANK, **also)


def test_a_report_comes_back_as_it_was(tmp_path):
    path = tmp_path / "horovod.json"
    whole = report(RANK, changed(rank=1, local_rank=1))
    path.write_bytes(msgspec.json.encode(whole))
    assert schema.load(path) == whole


@pytest.mark.parametrize(
    ("ranks", "fault"),
    [
        ((RANK, RANK), "ranks must contain each rank only once, got 0 2 times"),
        (
            (changed(rank=2),),
            "ranks[0].rank must be at least 0 and below 2 (the number of ranks), got 2",
        ),
        (
            (changed(local_rank=2),),
            "local_rank must be at least 0 and below 2 (the number of local ranks), got 2",
        ),
        ((changed(cpu=-1.0),), "ranks[0].cpu must be finite and not negative, got -1.0"),
        ((changed(background=8),), "ranks[0].background must be one of the tids of threads, got 8"),
        (
            (changed(threads=(msgspec.structs.replace(THREAD, cpu=-0.5),)),),
            "ranks[0].threads[0].cpu must be finite and not negative, got -0.5",
        ),
    ],
)
def test_faults_are_told(tmp_path, ranks, fault):
    path = tmp_path / "horovod.json"
    path.write_bytes(msgspec.json.encode(report(*ranks)))
    with pytest.raises(UsageError) as refused:
        schema.load(path)
    assert fault in str(refused.value)


def test_findings_are_checked(tmp_path):
    path = tmp_path / "horovod.json"
    costly = Finding(
        cause="spinning-thread",
        title="it spins",
        evidence="27% of a core",
        fix="let it sleep",
        share=1.5,
    )
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(report(), findings=(costly,))))
    with pytest.raises(
        UsageError, match=r"findings\[0\] \(spinning-thread\).share must be between"
    ):
        schema.load(path)
