"""Non-blocking collectives with sleeps between the tests give what MPI's own blocking ones give."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("ranks", "nbcs", "seed"),
    [
        (3, None, 0),
        (3, "3e-5", 1),
        (1, "0.001", 2),
        *(
            pytest.param(*case, marks=pytest.mark.proof)
            for case in itertools.product([1, 2, 3], [None, "3e-5", "0.001"], range(3))
        ),
    ],
)
def test_same_data_as_blocking(
    mpi: Callable[..., Any], ranks: int, nbcs: str | None, seed: int
) -> None:
    ended = mpi("collectives", seed, 4, ranks=ranks, nbcs=nbcs, gs="1")

    assert ended.code == 0, ended.stderr
    assert ended.stdout.split() == ["same"] * ranks
    assert [told.rank for told in ended.counts] == list(range(ranks))
    for told in ended.counts:
        assert told.collectives == 1 + 4 * 15 + 1
        assert (told.tests > 0) == (nbcs is not None or told.agreements > 0)
        assert 0 <= told.cpu <= told.seconds


def test_mpi_initialised_by_the_main_thread(mpi: Callable[..., Any]) -> None:
    ended = mpi("collectives", 7, 3, "main", ranks=3, nbcs="3e-5")

    assert ended.code == 0, ended.stderr
    assert [told.collectives for told in ended.counts] == [1 + 3 * 15 + 1] * 3
    # not the main thread
    assert all(told.tid != told.pid and told.tests > 0 for told in ended.counts)


def test_counting_alone_changes_nothing(mpi: Callable[..., Any]) -> None:
    ended = mpi("collectives", 1, 2)

    assert ended.code == 0, ended.stderr
    for told in ended.counts:
        assert told.collectives > 0
        assert (told.tests, told.sleeps, told.agreements) == (0, 0, 0)


@pytest.mark.parametrize("nbcs", ["often", "-1", "30e-6s", "7"])
def test_what_is_no_number_of_seconds_switches_both_off(mpi: Callable[..., Any], nbcs: str) -> None:
    ended = mpi("collectives", 1, 1, nbcs=nbcs, gs="1")

    assert ended.code == 0
    told = "a value of DLTUNE_NBCS, DLTUNE_GS or DLTUNE_REST is invalid: all three are off"
    assert told in ended.stderr
    assert all((told.tests, told.agreements) == (0, 0) for told in ended.counts)


def test_a_rest_that_is_no_number_of_seconds_switches_all_off(mpi: Callable[..., Any]) -> None:
    ended = mpi("collectives", 1, 1, nbcs="3e-5", gs="1", rest="often")

    assert ended.code == 0
    assert "all three are off" in ended.stderr
    assert all((told.tests, told.agreements) == (0, 0) for told in ended.counts)
