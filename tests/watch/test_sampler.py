"""Looks at a job on a clock that a test moves."""

from __future__ import annotations

import os

import pytest

from dltune.system.proc import stat
from dltune.system.proc.stat import Counts, Tree
from dltune.watch import sampler
from dltune.watch.sampler import Pace, Sampler, WatchedProcess, WatchedThread

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

    process_time = thread_time


class Looking(Sampler):
    """Takes these samples of this process."""

    REST = 0.2

    def __init__(self, *paces: Pace) -> None:
        super().__init__(Tree(os.getpid()))
        self.paces = paces

    def finish(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(sampler, "time", made)
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
    assert looked(clock, looking, 1.0) <= 1.17 * sampler.LONGEST
    waits = [looked(clock, looking, 1e-5) for _ in range(60)]
    assert waits[0] > 0.83 * sampler.LONGEST
    assert waits[-1] <= 1.17 * LEAST


def test_first_waits_are_short_and_so_are_those_after_something_new(clock: Clock) -> None:
    looking = Pace(2.0, SHARE, clock.look)
    waits = [looked(clock, looking, 1e-5) for _ in range(20)]
    assert waits[0] <= 1.17 * sampler.FIRST
    assert waits[-1] >= 0.83 * 2.0
    looking.soon()
    assert looking.due - clock.wall == pytest.approx(sampler.FIRST)
    assert looked(clock, looking, 1e-5) <= 1.17 * sampler.FIRST


def test_a_kind_of_look_may_know_better_when_it_is_due(clock: Clock) -> None:
    looking = Pace(2.0, SHARE, clock.look, lambda paced: paced + 7)
    assert 7 < looked(clock, looking, 1e-5) <= 7 + 1.17 * sampler.FIRST


def test_looks_are_taken_when_they_are_due_until_the_end(clock: Clock) -> None:
    often, seldom = (Pace(least, SHARE, clock.look) for least in (0.05, 1.0))
    rests: list[float] = []
    told: list[float] = []

    def rest(seconds: float) -> None:
        rests.append(seconds)
        clock.sleep(seconds)

    looking = Looking(often, seldom)
    looking.run(60.0, lambda: False, lambda: told.append(clock.wall), rest)
    assert looking.looks == often.looks + seldom.looks
    assert looking.ended == clock.wall
    assert 60 <= clock.wall <= 60.2
    assert 60 / 0.05 / 1.17 <= often.looks <= 60 / 0.05 / 0.83
    assert 60 / 1.17 <= seldom.looks <= 60 / 0.83 + 10
    assert max(rests) <= 0.2
    assert min(rests) >= sampler.SHORTEST
    assert 55 <= len(told) <= 60


def test_a_watch_that_is_over_takes_no_further_look(clock: Clock) -> None:
    looking = Pace(LEAST, SHARE, clock.look)
    Looking(looking).run(None, lambda: looking.looks == 3, lambda: None, clock.sleep)
    assert looking.looks == 3


def test_new_processes_are_members_and_make_the_first_waits_short_again(clock: Clock) -> None:
    pace = Pace(2.0, SHARE, clock.look)
    looking = Looking(pace)
    for _ in range(20):
        looked(clock, pace, 1e-5)
    key = os.getpid(), looking.tree.started(os.getpid())
    assert looking.find_members(pace)[0] == key
    assert pace.due - clock.wall == pytest.approx(sampler.FIRST)
    assert looking.running == looking.members >= {key}
    looked(clock, pace, 1e-5)
    due = pace.due
    looking.find_members(pace)
    assert pace.due == due


def test_a_thread_used_no_more_than_there_was(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All threads run all the time, and who reads their counts loses the CPU before some reads."""
    used = stat.counts(os.getpid(), os.getpid())
    assert used
    pauses = iter([0.0, 0.0, 5.0, 5.0])

    def counts(pid: int, tid: int, last: Counts | None) -> Counts:
        clock.sleep(next(pauses))
        return used._replace(cpu=clock.wall)

    process = WatchedProcess(
        pid=os.getpid(), since=0.0, until=0.0, clock=int(stat.now()) + 1, thread_type=WatchedThread
    )
    monkeypatch.setattr(stat, "threads", lambda _: [1, 2])
    monkeypatch.setattr(stat, "counts", counts)
    assert process.count_threads()
    clock.sleep(10.0)
    assert process.count_threads()
    threads = dict(process.current())
    assert [threads[tid].used.cpu for tid in (1, 2)] == [15.0, 20.0]
    assert [threads[tid].until - threads[tid].since for tid in (1, 2)] == [15.0, 20.0]
