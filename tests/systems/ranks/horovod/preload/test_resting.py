"""A background thread with nothing to send rests, and a tensor wakes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

# microseconds; of the first second nothing is rested
TENSORS, BETWEEN = 50, 50_000


@pytest.mark.parametrize(
    ("ranks", "nbcs"),
    [
        (3, "3e-5"),
        *(
            pytest.param(*case, marks=pytest.mark.proof)
            for case in [(2, None), (2, "3e-5"), (3, None)]
        ),
    ],
)
def test_tensors_end_rests(mpi: Callable[..., Any], ranks: int, nbcs: str | None) -> None:
    plain = mpi("resting", TENSORS, BETWEEN, ranks=ranks, nbcs=nbcs)
    assert plain.code == 0, plain.stderr

    rested = mpi("resting", TENSORS, BETWEEN, ranks=ranks, nbcs=nbcs, rest="1")

    assert rested.code == 0, rested.stderr
    for before, after in zip(plain.counts, rested.counts, strict=True):
        assert before.rests == 0
        assert after.rests >= TENSORS / 3
        # of a second each, if nothing ended them
        assert after.rested < after.rests / 2
        assert after.cycles < before.cycles


def test_a_rest_has_its_end(mpi: Callable[..., Any]) -> None:
    ended = mpi("resting", 3, 700_000, rest="0.01")
    assert ended.code == 0, ended.stderr
    for told in ended.counts:
        assert told.rests > 20


def test_a_rank_that_has_joined_does_not_rest(mpi: Callable[..., Any]) -> None:
    """Nothing arrives in it that could wake it, and the others need it."""
    ended = mpi("resting", TENSORS, BETWEEN, "joins", nbcs="3e-5", rest="1")
    assert ended.code == 0, ended.stderr
    worker, joined = ended.counts
    assert worker.rests >= TENSORS / 3
    assert joined.rests < worker.rests
    # one of a second for each of the other half, if it did
    assert joined.rested < TENSORS / 2 / 2


@pytest.mark.parametrize(("what", "most"), [("sets", 1), ("names", 1)])
def test_no_rest_where_others_may_wait_for_it(
    mpi: Callable[..., Any], what: str, most: int
) -> None:
    """Members of a process set, and tensors that are negotiated by name."""
    ended = mpi("resting", TENSORS, BETWEEN, what, rest="1")
    assert ended.code == 0, ended.stderr
    for told in ended.counts:
        assert told.rests <= most
