"""Horovod's ranks whose texts are all hostile."""

from __future__ import annotations

from results import EVIL

from dltune.schemas.diagnosis import Finding
from dltune.systems.ranks.horovod.schema import (
    SCHEMA,
    Cycles,
    Distribution,
    Horovod,
    Rank,
    Tensor,
    ThreadUse,
    Timeline,
)

SOME = Distribution(10, 1e-3, 1e-3, 2e-3, 2e-3, 3e-3)


def rank(number: int) -> Rank:
    threads = (
        ThreadUse(7, EVIL, "background", 0.25, 0.2, 0.05, 0.1, 900.0, 50.0, (0, 1)),
        ThreadUse(8, "tf_Compute", "compute", 0.5, 0.5, 0.0, None, 10.0, 5.0, (0, 1)),
    )
    return Rank(
        rank=number,
        size=2,
        local_rank=number,
        local_size=2,
        host=EVIL,
        pid=5 + number,
        seconds=10.0,
        controller="mpi",
        horovod=EVIL,
        mpi="Open MPI 4.1.8",
        settings={},
        evidence=("init", "stack"),
        background=7,
        cpu=0.75,
        cpus=(0, 1),
        bound=True,
        threads=threads,
        cycles=Cycles(1e-3, 900.0, SOME, SOME, None),
        ended=-9,
        ended_after=4.5,
        unseen=(EVIL,),
    )


def ranks() -> Horovod:
    timeline = Timeline(
        path=EVIL,
        seconds=9.5,
        events=100,
        truncated=False,
        controller="mpi",
        cycles=Cycles(1e-3, 800.0, SOME, None, 0.9),
        batches=20,
        fused=SOME,
        cached=0.5,
        negotiation=SOME,
        queue=SOME,
        transfer=SOME,
        late={"0": 0.75, "1": 0.25},
        tensors=(Tensor(EVIL, 10, 2048, SOME, SOME, SOME),),
    )
    finding = Finding(
        cause="cause", title=f"it spins {EVIL}", evidence="27 % of a core", fix="let it sleep"
    )
    return Horovod(
        SCHEMA,
        "2026-01-01T00:00:00+00:00",
        "0",
        ("mpirun", EVIL),
        "",
        "",
        {EVIL: 2},
        True,
        (rank(0), rank(1)),
        timeline,
        (finding,),
    )
