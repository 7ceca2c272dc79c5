"""Strategies 3 and 4, decision by decision (section III-D)."""

from __future__ import annotations

import pytest
from corun_scheduler import Admission, Scheduler

from dltune.schemas.machine import SCHEMA, Core, Machine
from dltune.schemas.plan import Candidate
from dltune.simulate.engine import CorunWork
from dltune.system.topology import builtin_machine, cores_for, placements

KNL = builtin_machine("knl-7250")


def work(threads: int, seconds: float, *, serial: float = 1000.0) -> CorunWork:
    choice = Candidate(threads, "shared" if threads % 2 == 0 else "spread", seconds)
    return CorunWork(serial=serial, choice=choice, candidates=(choice,))


def tickets(admissions: list[Admission]) -> list[int]:
    return [a.ticket for a in admissions]


def test_the_paper_s_example_takes_18_threads() -> None:
    """20 idle cores, 48 busy for another 1.9 s; 18/1.5 s, 20/1.3 s and 16/2.1 s to choose from."""
    scheduler = Scheduler(KNL)
    scheduler.ready(1, work(48, 1.9))
    assert tickets(scheduler.decide(0.0)) == [1]
    candidates = (
        Candidate(20, "spread", 1.3),
        Candidate(18, "spread", 1.5),
        Candidate(16, "spread", 2.1),
    )
    scheduler.ready(2, CorunWork(serial=20.0, choice=candidates[0], candidates=candidates))
    (admission,) = scheduler.decide(0.0)
    assert (admission.ticket, admission.threads, admission.seconds) == (2, 18, 1.5)
    assert set(admission.cores) <= set(range(48, 68))


def test_an_op_that_would_outlast_what_runs_waits_for_one_that_does_not() -> None:
    scheduler = Scheduler(KNL)
    scheduler.ready(1, work(40, 2.0))
    scheduler.decide(0.0)
    scheduler.ready(2, work(20, 3.0))
    scheduler.ready(3, work(20, 1.0))
    assert tickets(scheduler.decide(0.0)) == [3]


def test_when_none_qualifies_the_most_time_consuming_that_fits_runs() -> None:
    scheduler = Scheduler(KNL)
    scheduler.ready(1, work(40, 1.0))
    scheduler.decide(0.0)
    scheduler.ready(2, work(20, 3.0))
    scheduler.ready(3, work(20, 4.0))
    scheduler.ready(4, work(40, 9.0))
    assert tickets(scheduler.decide(0.0)) == [3]


def test_remaining_time_shrinks_as_the_clock_runs() -> None:
    scheduler = Scheduler(KNL)
    scheduler.ready(1, work(40, 2.0))
    scheduler.decide(10.0)
    scheduler.ready(2, work(28, 1.0))
    scheduler.ready(3, work(28, 1.5))
    # half a second is left: neither ends in time, so the longer one runs
    assert tickets(scheduler.decide(11.5)) == [3]


def test_on_an_empty_machine_the_most_time_consuming_op_runs_first() -> None:
    scheduler = Scheduler(KNL)
    scheduler.ready(1, work(68, 1.0))
    scheduler.ready(2, work(68, 2.0))
    assert tickets(scheduler.decide(0.0)) == [2]
    assert scheduler.decide(1.0) == []
    scheduler.finished(2, 2.0)
    assert tickets(scheduler.decide(2.0)) == [1]


def test_an_op_that_needs_the_whole_machine_is_not_overtaken_for_ever() -> None:
    scheduler = Scheduler(KNL)
    scheduler.ready(0, work(34, 1.0))
    scheduler.decide(0.0)
    scheduler.ready(1, work(68, 0.5))
    running, now, ticket = {0: 1.0}, 0.0, 2
    for _ in range(200):
        while len(running) < 4:  # halves arrive without end, and each outlasts what runs
            scheduler.ready(ticket, work(34, 1.0))
            running[ticket] = float("inf")
            ticket += 1
        for admission in scheduler.decide(now):
            if admission.ticket == 1:
                return
            running[admission.ticket] = now + admission.seconds
        first = min(running, key=lambda t: running[t])
        now = running.pop(first)
        scheduler.finished(first, now)
        now += 0.25 if ticket % 2 else 0.0
    pytest.fail("it never ran")


def test_strategy_4_runs_the_shortest_serial_op_on_a_second_hardware_thread() -> None:
    scheduler = Scheduler(KNL, hyperthreads=True)
    scheduler.ready(1, work(68, 10.0))
    scheduler.ready(2, work(68, 5.0, serial=1.0))
    scheduler.ready(3, work(68, 5.0, serial=0.5))
    scheduler.ready(4, work(68, 5.0, serial=100.0))
    admissions = scheduler.decide(0.0)
    assert tickets(admissions) == [1, 3, 2]
    assert [a.second for a in admissions] == [False, True, True]
    assert [a.cores for a in admissions[1:]] == [(0,), (1,)]
    assert admissions[1].seconds == pytest.approx(0.5 * 2 / 1.03)


def test_strategy_4_needs_hardware_threads() -> None:
    plain = Machine(
        schema=SCHEMA,
        name="plain",
        cores=tuple(Core(cpus=(c,), tile=0, socket=0, numa=0) for c in range(4)),
    )
    scheduler = Scheduler(plain, hyperthreads=True)
    scheduler.ready(1, work(4, 10.0))
    scheduler.ready(2, work(4, 5.0, serial=1.0))
    assert tickets(scheduler.decide(0.0)) == [1]


def test_pairs_to_avoid_never_run_together() -> None:
    scheduler = Scheduler(KNL, hyperthreads=True)
    scheduler.avoid(7, 8)
    scheduler.ready(1, work(34, 2.0), op=7)
    scheduler.ready(2, work(34, 1.0, serial=0.1), op=8)
    assert tickets(scheduler.decide(0.0)) == [1]
    scheduler.finished(1, 2.0)
    assert tickets(scheduler.decide(2.0)) == [2]


def together(scheduler: Scheduler, slow: float, rounds: int) -> None:
    """Runs op 0 beside op 1 that many times; op 1 takes `slow` times what was predicted."""
    for i in range(rounds):
        now = 100.0 * i
        scheduler.ready(2 * i, work(34, 2.0), op=0)
        scheduler.ready(2 * i + 1, work(34, 1.0), op=1)
        scheduler.decide(now)
        scheduler.finished(2 * i + 1, now + slow)
        scheduler.finished(2 * i, now + 2.0)


@pytest.mark.parametrize(
    ("slow", "rounds", "avoided"), [(1.5, 3, True), (1.5, 2, False), (1.2, 9, False)]
)
def test_interference_is_noticed_after_three_sightings(slow, rounds, avoided) -> None:
    scheduler = Scheduler(KNL)
    together(scheduler, slow, rounds)
    assert scheduler.avoided(0, 1) == avoided
    assert scheduler.avoided(1, 0) == avoided


def test_an_op_that_is_slow_even_alone_blames_nobody() -> None:
    scheduler = Scheduler(KNL)
    for i in range(3):
        scheduler.ready(1000 + i, work(34, 1.0), op=1)
        scheduler.decide(10.0 * i)
        scheduler.finished(1000 + i, 10.0 * i + 1.5)
    together(scheduler, 1.5, 5)
    assert not scheduler.avoided(0, 1)


def test_a_neighbour_of_a_moment_is_not_blamed() -> None:
    scheduler = Scheduler(KNL)
    for i in range(5):
        now = 100.0 * i
        scheduler.ready(2 * i, work(34, 2.0), op=0)
        scheduler.ready(2 * i + 1, work(34, 0.1), op=1)
        scheduler.decide(now)
        scheduler.finished(2 * i + 1, now + 0.1)
        scheduler.finished(2 * i, now + 4.0)
    assert not scheduler.avoided(0, 1)


def test_work_divided_into_more_parts_than_cores_still_runs() -> None:
    scheduler = Scheduler(KNL)
    scheduler.ready(1, work(272, 1.0))
    (admission,) = scheduler.decide(0.0)
    assert (admission.threads, len(admission.cores)) == (272, 68)


@pytest.mark.parametrize("busy", [0, 2, 20, 35, 66])
def test_cores_are_picked_as_placement_says(busy: int) -> None:
    """The native picker and dltune.system.topology agree, also on a partly idle machine."""
    held = set(cores_for(KNL, busy, "shared")) if busy else set()
    idle = set(range(68)) - held
    for threads in range(1, len(idle) + 1):
        for placement in placements(KNL, threads):
            scheduler = Scheduler(KNL)
            if busy:
                first = Candidate(busy, "shared", 9.0)
                scheduler.ready(0, CorunWork(serial=9.0, choice=first))
                (admission,) = scheduler.decide(0.0)
                assert set(admission.cores) == held
            choice = Candidate(threads, placement, 1.0)
            scheduler.ready(1, CorunWork(serial=9.0, choice=choice))
            (admission,) = scheduler.decide(0.0)
            assert admission.cores == cores_for(KNL, threads, placement, idle)
