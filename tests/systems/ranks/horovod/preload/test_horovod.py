"""Stock Horovod on two real ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from two_ranks import ONE_THREAD, STEPS, TRAIN, Controller, Running, Trained, job, trained

from dltune.systems.ranks.allreduce.section import Sleeps
from dltune.systems.ranks.horovod.preload import interposer
from dltune.systems.ranks.horovod.preload.interposer import read

pytestmark = pytest.mark.tensorflow

BOTH = Sleeps(between_tests=3e-5, agree_every=2)
# gradients are negotiated by name in the first step; a second later rests begin
MANY_STEPS = (TRAIN, "--steps", 150, "--blocks", 1, "--intra", 1, "--inter", 1)
CYCLE = 1e-3  # seconds, Horovod's own setting


def test_training_gives_the_same_losses_and_parameters(
    ranks: Callable[..., Running],
    plain_ranks: Callable[[Controller], Trained],
    preloaded: Path,
    tmp_path: Path,
) -> None:
    plain = plain_ranks("mpi")
    environment = interposer.variables(preloaded, BOTH, {}, tmp_path)

    asleep = trained(ranks("mpi", ONE_THREAD, env=environment))

    for mine, theirs in zip(asleep.ranks, plain.ranks, strict=True):
        assert mine.losses == theirs.losses
        assert mine.parameters == theirs.parameters
    first, second = read(tmp_path)
    assert (first.rank, second.rank) == (0, 1)
    assert first.cycles == second.cycles
    for told, rank in zip((first, second), asleep.ranks, strict=True):
        assert (told.pid, told.tid) == (rank.pid, rank.threads[0])
        assert told.collectives >= told.cycles > STEPS
        assert told.agreements == told.cycles // 2
        assert told.sleeps > 0


@pytest.fixture(scope="module")
def every_cycle(preloaded: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """MANY_STEPS with a cycle every millisecond."""
    folder = tmp_path_factory.mktemp("every")
    environment = interposer.variables(preloaded, None, {}, folder)
    with job(folder, "mpi", MANY_STEPS, env=environment) as running:
        return trained(running)


@pytest.mark.parametrize("between_tests", [pytest.param(None, marks=pytest.mark.proof), 3e-5])
def test_training_with_cycles_on_demand(
    ranks: Callable[..., Running],
    every_cycle: Trained,
    preloaded: Path,
    tmp_path: Path,
    between_tests: float | None,
) -> None:
    sleeps = Sleeps(between_tests, None, 0.05)

    demand = trained(
        ranks("mpi", MANY_STEPS, env=interposer.variables(preloaded, sleeps, {}, tmp_path))
    )

    for mine, theirs in zip(demand.ranks, every_cycle.ranks, strict=True):
        assert mine.losses == theirs.losses
        assert mine.parameters == theirs.parameters
    for told in read(tmp_path):
        # of 150 steps; how many a loaded machine leaves room for is chance
        assert told.rests > 5
        # each stands for several cycles; which of two runs has more of them is chance
        assert told.rested > 2 * CYCLE * told.rests, told


@pytest.mark.parametrize(
    "sleeps", [Sleeps(between_tests=3e-5, agree_every=1), Sleeps(3e-5, None, 0.05)]
)
def test_process_sets_and_a_rank_that_joins_early(
    ranks: Callable[..., Running], preloaded: Path, tmp_path: Path, sleeps: Sleeps
) -> None:
    chosen = interposer.variables(preloaded, sleeps, {}, tmp_path)

    job = ranks(
        "mpi",
        (Path(__file__).with_name("joining.py"),),
        env={**chosen, "HOROVOD_DYNAMIC_PROCESS_SETS": "1"},
    )

    assert job.wait() == 0, job.stderr
    assert job.stdout.count("joined") == 2
    for told in read(tmp_path):
        assert told.agreements == (told.cycles if sleeps.agree_every else 0)
