"""Agreed sleeps never make a rank wait for one that is not coming."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

CASES = [(2, None, "1"), (3, None, "1"), (2, "3e-5", "1"), (3, "3e-5", "2"), (4, "1e-4", "7")]


@pytest.mark.parametrize(
    ("ranks", "nbcs", "gs", "sets", "seed"),
    [
        (2, None, "1", (), 0),
        (3, "3e-5", "2", (), 1),
        (3, "3e-5", "2", ("dynamic",), 3),
        *(
            pytest.param(*case, sets, seed, marks=pytest.mark.proof)
            for case, sets, seed in itertools.product(CASES, [(), ("dynamic",)], range(4))
        ),
    ],
)
def test_ranks_delayed_at_random_end_after_the_same_cycles(
    mpi: Callable[..., Any],
    ranks: int,
    nbcs: str | None,
    gs: str,
    sets: tuple[str, ...],
    seed: int,
) -> None:
    # with a cycle time of a microsecond hardly anybody ever sleeps
    ended = mpi("cycles", seed, (1000, 1)[seed == 3], 60, *sets, ranks=ranks, nbcs=nbcs, gs=gs)

    assert ended.code == 0, ended.stderr
    cycles = {told.cycles for told in ended.counts}
    assert ended.stdout.split("\n")[:-1] == [f"cycles {min(cycles)}"] * ranks
    for told in ended.counts:
        # the last one is settled when the communicator is freed
        assert told.agreements == told.cycles // int(gs)
        assert told.shortened <= told.agreements


@pytest.mark.parametrize(("told", "node"), [(["off"], None), ([], "elsewhere")])
def test_where_others_do_without_the_library_it_does_nothing(
    mpi: Callable[..., Any], told: list[str], node: str | None
) -> None:
    """Not even the agreement that the ranks have the same settings. Nor on another node than
    dltune's, to which a launcher may have brought it."""
    ended = mpi("cycles", 0, 1000, 20, *told, nbcs="3e-5", gs="1", rest="1", node=node)
    assert ended.code == 0, ended.stderr
    assert ended.stdout.startswith("cycles ")
    assert ended.counts == []


def test_a_rank_that_does_not_sleep_wakes_the_others(mpi: Callable[..., Any]) -> None:
    ended = mpi("straggler", 10, ranks=3, gs="1")

    assert ended.code == 0, ended.stderr
    *sleepers, straggler = ended.counts
    for told in sleepers:
        assert (told.cycles, told.shortened) == (6, 5)
        assert 0 < told.saved < 50
    assert straggler.shortened == 0


def test_only_agreed_cycles_are_cut_short(mpi: Callable[..., Any]) -> None:
    ended = mpi("straggler", 5, ranks=2, gs="2")

    assert ended.code == 0, ended.stderr
    assert ended.counts[0].shortened == 2
    assert ended.counts[0].seconds >= 15  # of five sleeps of five seconds, three in full


@pytest.mark.parametrize("how", ["exit", "abort"])
def test_a_rank_that_leaves_ends_the_job(mpi: Callable[..., Any], how: str) -> None:
    ended = mpi("leaver", how, ranks=3, nbcs="3e-5", gs="1")

    assert ended.code == 9, ended.stderr
