"""A background thread with nothing to send rests, and a tensor wakes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

# microseconds; of the first second nothing is rested
TENSORS, BETWEEN = 30, 80_000
CYCLE = 1e-3  # seconds, at least


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
        # without rests cycles have all of the time, however many of them a busy machine runs
        assert after.cycles * CYCLE < after.seconds / 2
        # each takes its time, and none runs in a rest, which may have a cycle's time within it
        assert after.cycles * CYCLE <= after.seconds - after.rested + (after.rests + 3) * CYCLE


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


@pytest.mark.parametrize("what", ["sets", "names"])
def test_no_rest_where_others_may_wait_for_it(mpi: Callable[..., Any], what: str) -> None:
    """Members of a process set, and tensors that are negotiated by name."""
    ended = mpi("resting", TENSORS, BETWEEN, what, rest="1")
    assert ended.code == 0, ended.stderr
    most = 1.0
    if what == "names":
        # a second after the last of them it may: where the machine kept the next one that long
        most += 3 * sum(float(line.split()[-1]) for line in ended.stdout.splitlines())
    for told in ended.counts:
        assert told.rests <= most
