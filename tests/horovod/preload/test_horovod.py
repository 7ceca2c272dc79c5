"""Stock Horovod on two real ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from two_ranks import TRAIN, Running

from dltune.documents.plan_allreduce import Sleeps
from dltune.horovod.preload import counts, library

pytestmark = pytest.mark.tensorflow

BOTH = Sleeps(between_tests=3e-5, agree_every=2)


def test_training_gives_the_same_losses_and_parameters(
    ranks: Callable[..., Running], preloaded: Path, tmp_path: Path
) -> None:
    # its own splits would make kernels sum in an order of the moment
    script = (TRAIN, "--steps", 12, "--blocks", 3, "--intra", 1, "--inter", 1)
    plain = ranks("mpi", script)
    assert plain.wait() == 0, plain.stderr

    asleep = ranks("mpi", script, env=library.variables(preloaded, BOTH, {}, tmp_path))

    assert asleep.wait() == 0, asleep.stderr
    for rank in range(2):
        assert asleep.rank(rank).losses == plain.rank(rank).losses
        assert asleep.rank(rank).parameters == plain.rank(rank).parameters
    first, second = counts.read(tmp_path)
    assert (first.rank, second.rank) == (0, 1)
    assert first.cycles == second.cycles
    for told, rank in ((first, asleep.rank(0)), (second, asleep.rank(1))):
        assert (told.pid, told.tid) == (rank.pid, rank.threads[0])
        assert told.collectives >= told.cycles > 12
        assert told.agreements == told.cycles // 2
        assert told.sleeps > 0


@pytest.mark.parametrize("between_tests", [None, 3e-5])
def test_training_with_cycles_on_demand(
    ranks: Callable[..., Running], preloaded: Path, tmp_path: Path, between_tests: float | None
) -> None:
    # gradients are negotiated by name in the first step; a second later rests begin
    script = (TRAIN, "--steps", 400, "--blocks", 3, "--intra", 1, "--inter", 1)
    every = ranks("mpi", script, env=library.variables(preloaded, None, {}, tmp_path))
    assert every.wait() == 0, every.stderr
    before = counts.read(tmp_path)
    sleeps = Sleeps(between_tests, None, 0.05)
    (again := tmp_path / "again").mkdir()

    demand = ranks("mpi", script, env=library.variables(preloaded, sleeps, {}, again))

    assert demand.wait() == 0, demand.stderr
    for rank in range(2):
        assert demand.rank(rank).losses == every.rank(rank).losses
        assert demand.rank(rank).parameters == every.rank(rank).parameters
    for plain, told in zip(before, counts.read(again), strict=True):
        assert told.rests > 20
        assert told.cycles < plain.cycles


@pytest.mark.parametrize(
    "sleeps", [Sleeps(between_tests=3e-5, agree_every=1), Sleeps(3e-5, None, 0.05)]
)
def test_process_sets_and_a_rank_that_joins_early(
    ranks: Callable[..., Running], preloaded: Path, tmp_path: Path, sleeps: Sleeps
) -> None:
    chosen = library.variables(preloaded, sleeps, {}, tmp_path)

    job = ranks(
        "mpi",
        (Path(__file__).with_name("joining.py"),),
        env={**chosen, "HOROVOD_DYNAMIC_PROCESS_SETS": "1"},
    )

    assert job.wait() == 0, job.stderr
    assert job.stdout.count("joined") == 2
    for told in counts.read(tmp_path):
        assert told.agreements == (told.cycles if sleeps.agree_every else 0)
