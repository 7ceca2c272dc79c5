"""Results for the report's tests whose texts are all hostile: gates and readings of data."""

from __future__ import annotations

import synthetic
from observations import observation, process, python

from dltune.findings.diagnosis import diagnose
from dltune.findings.evidence import Evidence
from dltune.schemas import gate, io
from dltune.schemas.diagnosis import Diagnosis, Finding

EVIL = "<script>window.caught=1</script>\u202e"


def gated(outcome: gate.Outcome) -> gate.Result:
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
        why="the whole interval is above the limit",
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


def watched() -> io.Io:
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
    return io.Io(
        schema=io.SCHEMA,
        created="2026-01-01T00:00:00+00:00",
        dltune="0",
        subject=EVIL,
        partial=None,
        storage=(),
        watch=watch,
        experiment=None,
        findings=(
            Finding(
                cause="cause",
                title="reading is held up by page faults",
                evidence="12 of them",
                fix="read ahead",
            ),
        ),
        unseen=("no tracepoints",),
    )


def read_in_every_way() -> io.Io:
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
    return io.Io(
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


def diagnosed() -> Diagnosis:
    """Of a job that spends its time on validation and in Keras' loop."""
    of = observation(
        python=python(validation=0.4, fit=0.1), processes=(process(command=EVIL),), unseen=(EVIL,)
    )
    return diagnose(Evidence(observation=of), EVIL, 90.0, EVIL, EVIL)
