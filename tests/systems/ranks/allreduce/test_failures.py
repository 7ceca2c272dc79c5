"""Which of several ranks that ended was the first to fail."""

from __future__ import annotations

from signal import SIGKILL, SIGTERM

from dltune.systems.ranks.allreduce.enforce import RankExit, in_words

SHUT_DOWN = "UnknownError: Horovod has been shut down. This was caused by an exception on one rank"


def told(*exits: RankExit) -> str | None:
    return in_words(list(exits), lambda one: f"rank {one.rank}")


def test_nobody_failed() -> None:
    assert told(RankExit(0, 10, 1.0, code=0), RankExit(1, 11, 1.1, code=0)) is None


def test_the_first_by_time() -> None:
    assert (
        told(RankExit(0, 10, 2.0, "ValueError: two", 1), RankExit(1, 11, 1.0, "ValueError: one", 1))
        == "rank 1 failed first: ValueError: one; rank 0 followed"
    )


def test_who_lost_another_rank_is_no_cause_even_when_it_is_heard_of_first() -> None:
    assert (
        told(RankExit(0, 10, 1.0, SHUT_DOWN, 1), RankExit(1, 11, 1.2, code=-SIGKILL))
        == "rank 1 failed first: it was stopped by SIGKILL; rank 0 followed"
    )


def test_who_was_ended_by_the_launcher_is_no_cause() -> None:
    assert (
        told(RankExit(0, 10, 1.0, code=-SIGTERM), RankExit(1, 11, 1.2, code=3))
        == "rank 1 failed first: it ended with exit code 3; rank 0 followed"
    )


def test_a_job_that_was_ended_has_no_rank_that_failed() -> None:
    assert (
        told(RankExit(1, 11, 1.0, code=-SIGTERM), RankExit(0, 10, 1.2, code=-SIGTERM))
        == "rank 0, rank 1 were stopped by SIGTERM"
    )


def test_one_that_still_ran_is_not_among_those_who_followed() -> None:
    assert told(RankExit(1, 11, 1.2, code=3)) == "rank 1 failed first: it ended with exit code 3"


def test_an_end_that_the_kernel_did_not_tell() -> None:
    assert told(RankExit(1, 11, 1.2)) == "rank 1 failed first: it ended, exit code unknown"
