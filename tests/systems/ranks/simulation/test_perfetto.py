"""What simulated ranks did, as Perfetto reads it."""

from __future__ import annotations

import itertools
import json

from dltune.systems.ranks.simulation.job import (
    ORIGINAL,
    Job,
    Method,
    Network,
    Phase,
    Pool,
    Quantiles,
    constant,
)
from dltune.systems.ranks.simulation.simulate import simulate, trace

RARELY = Quantiles(((0.0, 0.0), (0.98, 0.0), (1.0, 0.012)))
JOB = Job(
    ranks=2,
    pool=Pool(1, 7),
    tensors=(1 << 20,),
    phases=(Phase(0.05, 1, (0,)),),
    network=Network(5e-6, 12.5e9),
    wake=RARELY,
    wake_busy=RARELY,
    jitter=constant(1.0),
    cycle_time=5e-3,
    offloaded=True,
)


def test_a_trace_has_a_row_for_each_thread_and_slices_that_never_overlap() -> None:
    outcome = simulate(JOB, ORIGINAL, steps=5, seed=1, drawn=2)
    events = json.loads(trace({"original": outcome.slices}))["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert {"original: rank 0", "original: rank 1", "background thread"} <= names
    rows: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            rows.setdefault((event["pid"], event["tid"]), []).append(
                (event["ts"], event["ts"] + event["dur"])
            )
    assert {row for _, row in rows} == {1, 2}
    for slices in rows.values():
        for before, after in itertools.pairwise(sorted(slices)):
            assert before[1] <= after[0] + 1e-6


def long_waits(method: Method) -> list[tuple[int, float]]:
    """Which rank waited for most of a cycle, and when, once one had overslept for longer than a
    cycle."""
    slices = simulate(JOB, method, steps=10, seed=2, drawn=2).slices
    late = min(s.end for s in slices if s.doing == "oversleep" and s.end - s.start > 5e-3)
    return [
        (s.rank, s.start)
        for s in slices
        if s.doing == "wait" and s.start > late and s.end - s.start > 0.9 * JOB.cycle_time
    ][:20]


def test_the_cascade_of_an_oversleep_is_there_to_see() -> None:
    """Fig. 6.9: one rank overslept once; from then on the other waits through every cycle, and
    never sleeps. Under GS (Fig. 6.11) only another oversleep makes it wait again."""
    original = long_waits(ORIGINAL)
    assert len({rank for rank, _ in original}) == 1
    for (_, before), (_, after) in itertools.pairwise(original):
        assert after - before < 1.1 * JOB.cycle_time
    gs = Method("global-sleep", agree_every=1)
    apart = [after - before for (_, before), (_, after) in itertools.pairwise(long_waits(gs))]
    assert min(apart) > 2 * JOB.cycle_time
