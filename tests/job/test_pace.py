"""Looks at a job on a clock that a test moves."""

from __future__ import annotations

import pytest

from dltune.job import pace
from dltune.job.pace import Pace

LEAST, SHARE = 0.02, 0.002


class Clock:
    """Of the wall, and of the CPU time of who looks."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def monotonic(self) -> float:
        return self.wall

    def thread_time(self) -> float:
        return self.cpu


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(pace, "time", made)
    return made


def looked(clock: Clock, looking: Pace, cost: float, held_up: float = 0.0) -> float:
    """Seconds from a look that takes `cost` of CPU time to the next."""
    clock.wall = looking.due
    looking.begin()
    clock.cpu += cost
    clock.wall += cost + held_up
    looking.end()
    return looking.due - clock.wall


@pytest.mark.parametrize("held_up", [0.0, 0.5])
@pytest.mark.parametrize("cost", [1e-5, 1e-4, 1e-3, 2e-3])
def test_looking_takes_no_more_than_its_share_of_a_cpu(
    clock: Clock, cost: float, held_up: float
) -> None:
    """Time in which other work has the CPU is no cost."""
    looking = Pace(LEAST, SHARE)
    waits = [looked(clock, looking, cost, held_up) for _ in range(500)]
    assert min(waits) >= 0.83 * max(LEAST, cost / SHARE)
    assert max(waits) <= 1.17 * max(LEAST, cost / SHARE)


def test_one_dear_look_makes_the_next_ones_wait_but_not_for_long(clock: Clock) -> None:
    looking = Pace(LEAST, SHARE)
    assert looked(clock, looking, 1.0) <= 1.17 * pace.LONGEST
    waits = [looked(clock, looking, 1e-5) for _ in range(60)]
    assert waits[0] > 0.83 * pace.LONGEST
    assert waits[-1] <= 1.17 * LEAST


def test_first_waits_are_short_and_so_are_those_after_something_new(clock: Clock) -> None:
    looking = Pace(2.0, SHARE)
    waits = [looked(clock, looking, 1e-5) for _ in range(20)]
    assert waits[0] <= 1.17 * pace.FIRST
    assert waits[-1] >= 0.83 * 2.0
    looking.soon()
    assert looking.due - clock.wall == pytest.approx(pace.FIRST)
    assert looked(clock, looking, 1e-5) <= 1.17 * pace.FIRST
