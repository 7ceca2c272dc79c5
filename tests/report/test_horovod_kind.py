"""Horovod's ranks on the page."""

from __future__ import annotations

from pathlib import Path

from page_parsed import parsed

from dltune.documents.horovod import (
    SCHEMA,
    Cycles,
    Distribution,
    Finding,
    Horovod,
    Rank,
    Tensor,
    ThreadUse,
    Timeline,
)
from dltune.report.page import page
from dltune.report.section import Context, Loaded

EVIL = "<script>alert(1)</script>\u202e"
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


def shown(report: Horovod) -> str:
    found = parsed(page(Context((Loaded(Path("h.json"), "dltune.horovod", report, "d0"),))))
    assert len(found.of("script")) == 1
    return found.of("main")[0].text


def test_everything_is_there_and_nothing_of_it_is_markup():
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
    finding = Finding(f"it spins {EVIL}", "27 % of a core", "let it sleep")
    text = shown(
        Horovod(
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
    )
    for part in (
        "it spins",
        "let it sleep",
        "Rank 0: 0.75 cores",
        "background: 25% of a core",
        "after 4.5 s: -9",
        "init and stack",
        "CPU 0-1, bound",
        "20 collectives",
        "90% of them empty",
        "the watch was interrupted",
    ):
        assert part.lower() in text.lower(), part
    assert "\u202e" not in text


def test_a_timeline_alone():
    timeline = Timeline(
        "t", 1.0, 2, True, None, None, 0, Distribution(0), None, Distribution(0),
        Distribution(0), Distribution(0), {}, (),
    )  # fmt: skip
    text = shown(
        Horovod(SCHEMA, "", "", (), "", "", {}, False, (), timeline, ())
    )  # fmt: skip
    assert "Nothing was found to be wrong" in text
    assert "0 collectives" in text
