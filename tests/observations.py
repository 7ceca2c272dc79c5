"""Observations of jobs that were never run."""

from __future__ import annotations

import msgspec

from dltune.schemas.diagnosis import Graphs, Host, Neighbour, Observation, Process, Python, Share
from dltune.schemas.profile import Line

MIB = 1 << 20


def process(pid: int = 1, **more: object) -> Process:
    """One that has two cores and uses 1.9 of them."""
    usual = Process(
        pid=pid,
        command="python train.py",
        seconds=20.0,
        cpu=1.9,
        kernel=0.05,
        queued=0.02,
        threads=9,
        cpus=(0, 1),
        ranks=None,
        intra=2,
        inter=2,
        faults=10.0,
        resident=500 * MIB,
        growth=0.0,
    )
    return msgspec.structs.replace(usual, **more)


def host(**more: object) -> Host:
    usual = Host(
        cpus=(0, 1),
        online=2,
        quota=None,
        throttled=None,
        others=0.01,
        neighbours=(),
        stolen=0.0,
        memory_limit=None,
        reclaims=0.0,
        available=8192 * MIB,
    )
    return msgspec.structs.replace(usual, **more)


def python(generator: float = 0.0, **shares: float) -> Python:
    """The rest of the looks found a step."""
    shares["step"] = 1.0 - sum(shares.values())
    at = Line("train.py:7 (<module>)", 0.5)
    return Python(
        pid=1,
        looks=200,
        shares=tuple(Share(name, share, (at,)) for name, share in shares.items()),  # type: ignore[arg-type]
        generator=generator,
        generator_lines=(Line("data.py:3 (rows)", generator),) if generator else (),
    )


def graphs(**more: object) -> Graphs:
    """Of one function, if nobody says otherwise."""
    usual = Graphs(traced=0, once=0, eager=0.0, again=more.get("traced", 0))  # type: ignore[arg-type]
    return msgspec.structs.replace(usual, **more)


def observation(**more: object) -> Observation:
    """Of a healthy job."""
    usual = Observation(
        seconds=20.0,
        host=host(),
        processes=(process(),),
        python=python(),
        graphs=graphs(),
        cost=0.01,
        unseen=(),
    )
    return msgspec.structs.replace(usual, **more)


BUSY = Neighbour(77, "a neighbour", 0.9)
