"""Looks at a job on a clock that a test moves."""

from __future__ import annotations

import pytest

from dltune.system.proc import stat
from dltune.system.proc.stat import Pace, keep_looking

LEAST, SHARE = 0.02, 0.002


class Clock:
    """Of the wall, and of the CPU time of who looks."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0
        self.work = (0.0, 0.0)  # of the next look: CPU time, and time that others have the CPU

    def look(self) -> None:
        cost, held_up = self.work
        self.cpu += cost
        self.wall += cost + held_up

    def sleep(self, seconds: float) -> None:
        self.wall += seconds

    def monotonic(self) -> float:
        return self.wall

    def thread_time(self) -> float:
        return self.cpu


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(stat, "time", made)
    return made


def looked(clock: Clock, looking: Pace, cost: float, held_up: float = 0.0) -> float:
    """Seconds from a look that takes `cost` of CPU time to the next."""
    clock.wall = looking.due
    clock.work = cost, held_up
    looking.take()
    return looking.due - clock.wall


@pytest.mark.parametrize("held_up", [0.0, 0.5])
@pytest.mark.parametrize("cost", [1e-5, 1e-4, 1e-3, 2e-3])
def test_looking_takes_no_more_than_its_share_of_a_cpu(
    clock: Clock, cost: float, held_up: float
) -> None:
    """Time in which other work has the CPU is no cost."""
    looking = Pace(LEAST, SHARE, clock.look)
    waits = [looked(clock, looking, cost, held_up) for _ in range(500)]
    assert min(waits) >= 0.83 * max(LEAST, cost / SHARE)
    assert max(waits) <= 1.17 * max(LEAST, cost / SHARE)


def test_one_dear_look_makes_the_next_ones_wait_but_not_for_long(clock: Clock) -> None:
    looking = Pace(LEAST, SHARE, clock.look)
    assert looked(clock, looking, 1.0) <= 1.17 * stat.LONGEST
    waits = [looked(clock, looking, 1e-5) for _ in range(60)]
    assert waits[0] > 0.83 * stat.LONGEST
    assert waits[-1] <= 1.17 * LEAST


def test_first_waits_are_short_and_so_are_those_after_something_new(clock: Clock) -> None:
    looking = Pace(2.0, SHARE, clock.look)
    waits = [looked(clock, looking, 1e-5) for _ in range(20)]
    assert waits[0] <= 1.17 * stat.FIRST
    assert waits[-1] >= 0.83 * 2.0
    looking.soon()
    assert looking.due - clock.wall == pytest.approx(stat.FIRST)
    assert looked(clock, looking, 1e-5) <= 1.17 * stat.FIRST


def test_a_kind_of_look_may_know_better_when_it_is_due(clock: Clock) -> None:
    looking = Pace(2.0, SHARE, clock.look, lambda paced: paced + 7)
    assert 7 < looked(clock, looking, 1e-5) <= 7 + 1.17 * stat.FIRST


def test_looks_are_taken_when_they_are_due_until_the_end(clock: Clock) -> None:
    often, seldom = (Pace(least, SHARE, clock.look) for least in (0.05, 1.0))
    rests: list[float] = []
    told: list[float] = []

    def rest(seconds: float) -> None:
        rests.append(seconds)
        clock.sleep(seconds)

    keep_looking((often, seldom), 0.2, 60.0, lambda: False, lambda: told.append(clock.wall), rest)
    assert 60 <= clock.wall <= 60.2
    assert 60 / 0.05 / 1.17 <= often.looks <= 60 / 0.05 / 0.83
    assert 60 / 1.17 <= seldom.looks <= 60 / 0.83 + 10
    assert max(rests) <= 0.2
    assert min(rests) >= stat.SHORTEST
    assert 55 <= len(told) <= 60


def test_a_watch_that_is_over_takes_no_further_look(clock: Clock) -> None:
    looking = Pace(LEAST, SHARE, clock.look)
    keep_looking((looking,), 0.2, None, lambda: looking.looks == 3, lambda: None, clock.sleep)
    assert looking.looks == 3
