"""Two real ranks, recorded, against what is predicted from their computing alone."""

from __future__ import annotations

import gzip
import json
import statistics
import sys
from pathlib import Path

import pytest

from dltune.systems.ranks.simulation.job import ORIGINAL
from dltune.systems.ranks.simulation.simulate import simulate

sys.path.append(str(Path(__file__).parents[4] / "scripts" / "research"))
import sim_horovod

DATA = Path(__file__).parents[1] / "simulation" / "data"


@pytest.mark.parametrize("controller", ["gloo", "mpi"])
def test_steps_and_empty_cycles_of_real_ranks_are_predicted(controller: str) -> None:
    record = sim_horovod.Record(DATA / f"{controller}.json.gz")
    job = sim_horovod.calibrated(record)
    assert (job.pool.ranks, len(job.tensors)) == (2 if controller == "gloo" else 1, 34)
    outcome = simulate(job, ORIGINAL, steps=500, seed=6)
    steps = [
        seconds
        for name in ("both", "both_again")
        for rank in record.phase(name)
        for _, seconds in rank["steps"]
    ]
    assert outcome.seconds == pytest.approx(statistics.mean(steps), rel=0.2)
    batches = sum(map(len, record.batches()))
    cycles = len(record.timeline.cycles)
    assert outcome.empty_share == pytest.approx(1 - batches / cycles, rel=0.2)


def test_one_real_rank_spins_at_rest_while_the_other_sleeps() -> None:
    """Fig. 6.9 as it happens under MPI on two cores with nothing else to do."""
    record = sim_horovod.Record(DATA / "mpi.json.gz")
    shares = sorted(
        rank["phases"]["rest"]["threads"][str(rank["background"])]
        / rank["phases"]["rest"]["seconds"]
        for rank in record.plain
    )
    assert shares[0] < 0.1
    assert shares[1] > 0.5


def test_the_cascade_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "trace.json.gz"
    monkeypatch.setattr(sys, "argv", ["sim_horovod.py", "trace", str(out)])
    sim_horovod.main()
    events = json.loads(gzip.decompress(out.read_bytes()))["traceEvents"]
    named = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {
        f"{method}: rank 3"
        for method in ("original", "global-sleep", "non-blocking", "ordered-bins")
    } <= named
    assert any(e["name"] == "oversleep" and e["dur"] > 5000 for e in events if e["ph"] == "X")


def test_networks_hold_all_their_gradients() -> None:
    for net in sim_horovod.NETS:
        record = sim_horovod.Record(DATA / "gloo.json.gz")
        job = sim_horovod.summit_job(net, 6, 0.1, record)
        assert sum(job.tensors) == pytest.approx(4e6 * sum(m for _, m in net.groups), rel=1e-3)
