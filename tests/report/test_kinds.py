"""Gate results and I/O reports on the page."""

from __future__ import annotations

from pathlib import Path

import msgspec
import synthetic
from page_parsed import parsed

from dltune.documents import gate, io
from dltune.report.page import page
from dltune.report.section import Context, Loaded

EVIL = "<script>alert(1)</script>\u202e"


def text(document: msgspec.Struct, kind: str) -> str:
    loaded = Loaded(Path("result.json"), kind, document, "d0")
    found = parsed(page(Context((loaded,))))
    assert len(found.of("script")) == 1
    return found.of("main")[0].text


def result(outcome: gate.Outcome) -> gate.Result:
    verdict = gate.Verdict(
        metric=f"time {EVIL}",
        unit="s",
        over="ratio",
        limit=1.1,
        outcome=outcome,
        median=1.2,
        low=1.15,
        high=1.25,
        base=0.1,
        head=0.12,
        rounds=4,
        why="the whole interval lies beyond the limit",
    )
    return gate.Result(
        schema=gate.RESULT_SCHEMA,
        created="2026-01-01T00:00:00+00:00",
        dltune="0",
        machine=synthetic.machine(),
        command=("python", EVIL),
        kind="steps",
        base=gate.Revision("main", "0123456789abcdef"),
        head=gate.Revision(EVIL, None),
        confidence=0.95,
        budget=60.0,
        seconds=30.0,
        outcome=outcome,
        passed=outcome == "pass",
        verdicts=(verdict,),
        measured={
            "base": (gate.Measured("time", "s", (0.1, 0.11, 0.1, 0.1)),),
            "head": (gate.Measured("time", "s", (0.12, 0.12, 0.13, 0.12)),),
        },
    )


def test_a_gate() -> None:
    told = text(result("fail"), "dltune.gate")
    assert "Limits do not hold: time <script>" in told
    assert "1.150 to 1.250" in told
    assert "100 ms" in told
    assert "All 1 limits hold" in text(result("pass"), "dltune.gate")
    assert "undecided" in text(result("undecided"), "dltune.gate")


def test_a_reading_that_was_watched() -> None:
    watch = io.Watch(
        seconds=10.0,
        faults_by="counters",
        files=(
            io.DataFile(
                path=f"/data/{EVIL}",
                format="lmdb",
                size=5 * 2**20,
                device="8:1",
                processes=(7,),
                mapped=5 * 2**20,
                resident=None,
                cached=None,
                storage_bytes=4 * 2**20,
                asked=2**20,
                amplification=4.0,
                advice=None,
                direct=False,
                major=12,
                minor=None,
                shared=None,
                hot_size=4096,
                hot=(),
                requests=(),
                pattern=io.Pattern("strided", "faults", 9, 4096.0, 4096.0, 1.0),
            ),
        ),
        processes=(),
        pressure=(io.Pressure("io", "machine", 0.25, None),),
        lines=(io.Line(f"train.py:3 ({EVIL})", 0.5, 4),),
        cost=io.Cost(0.1, 100, 0.01),
    )
    document = io.Io(
        schema=io.SCHEMA,
        created="2026-01-01T00:00:00+00:00",
        dltune="0",
        subject=EVIL,
        partial=None,
        storage=(),
        watch=watch,
        experiment=None,
        findings=(io.Finding("reading is held up by page faults", "12 of them", "read ahead"),),
        unseen=("no tracepoints",),
    )
    told = text(document, "dltune.io")
    assert "Reading is held up by page faults. 12 of them." in told
    assert "4.00" in told
    assert "25.0%" in told
    assert "no tracepoints" in told


def test_a_file_read_in_every_way() -> None:
    def speed(median: float) -> io.Measured:
        return io.Measured(median, 0.02, 5)

    rate, share = speed(100 * 2**20), speed(0.5)
    experiment = io.Experiment(
        path="/data/train.lmdb",
        format="lmdb",
        size=2**30,
        device="8:1",
        readers=(1, 2),
        records=1000,
        mean_size=1e5,
        window=2**27,
        repeats=5,
        seconds=60.0,
        cold="no page was resident",
        ceiling=io.Ceiling("direct", 2**20, 4, speed(400 * 2**20)),
        strided=(io.Strided(2, "cursor", "mmap", rate, share, share, share, share, 0.25, None),),
        blocks=(io.Block("pread", 65536, rate, share, share),),
        shuffled=(io.Random("pread", True, 8, rate, speed(1e-3), None),),
        seek=None,
        share_of_ceiling=0.25,
    )
    document = io.Io(
        schema=io.SCHEMA,
        created="2026-01-01T00:00:00+00:00",
        dltune="0",
        subject="/data/train.lmdb",
        partial="interrupted",
        storage=(),
        watch=None,
        experiment=experiment,
        findings=(),
        unseen=(),
    )
    told = text(document, "dltune.io")
    assert "ceiling: 400.0 MiB/s with 4 requests" in told
    assert "reaches 25% of it" in told
    assert "1000.0" in told, "microseconds of latency"
    assert "This report is partial: interrupted." in told
