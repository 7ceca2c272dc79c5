from __future__ import annotations

import pytest

from dltune.job.protocol import Thread, Totals
from dltune.profile.climb import Choice, Counting
from dltune.system.perf.events import parse

FAULTS, SWITCHES, CLOCK = map(parse, ("minor-faults", "context-switches", "task-clock"))
CASE = (2, "spread")


def counting(*groups: tuple[object, ...]) -> Counting:
    return Counting(Choice("software", "why", groups))  # type: ignore[arg-type]


def test_a_count_is_the_mean_of_its_runs_and_clocks_are_seconds() -> None:
    made = counting((FAULTS, CLOCK))
    made.add(made.choice.groups[0], "op", CASE, [1.0, 3.0, 2e9])
    made.add(made.choice.groups[0], "op", CASE, [1.0, 6.0, 4e9])
    faults, clock = made.counts("op", CASE)
    assert (faults.event, faults.value, faults.samples) == ("minor-faults", 4.5, 2)
    assert clock.value == pytest.approx(3.0)
    assert made.counts("op", (1, "spread")) == ()
    assert made.counts("other", CASE) == ()


def test_the_least_running_share_is_told() -> None:
    made = counting((FAULTS,))
    made.add(made.choice.groups[0], "op", CASE, [1.0, 3.0])
    made.add(made.choice.groups[0], "op", CASE, [0.4, 3.0])
    assert made.counts("op", CASE)[0].running == 0.4


def test_groups_are_counted_in_turns() -> None:
    made = counting((FAULTS,), (SWITCHES,))
    made.add(made.choice.groups[1], "op", CASE, [1.0, 7.0])
    assert [count.event for count in made.counts("op", CASE)] == ["context-switches"]
    made.add(made.choice.groups[0], "op", CASE, [1.0, 1.0])
    assert [count.event for count in made.counts("op", CASE)] == [
        "minor-faults",
        "context-switches",
    ]


def test_totals_are_the_interval_s_and_a_new_thread_counts_from_zero() -> None:
    made = counting((FAULTS, CLOCK))
    made.account(
        Totals(
            (100, 0, 0, 0, 10**9),
            [Thread(1, False, 80, 0, 0, 0, 0), Thread(2, True, 20, 0, 0, 0, 10**9)],
            [],
        )
    )
    made.account(
        Totals(
            (200, 0, 0, 0, 4 * 10**9),
            [
                Thread(1, False, 90, 0, 0, 0, 0),
                Thread(2, True, 70, 0, 0, 0, 3 * 10**9),
                Thread(3, True, 40, 0, 0, 0, 10**9),
            ],
            [[60.0, 2.5e9]],
        )
    )
    faults, clock = made.totals()
    assert (faults.ops, faults.gaps, faults.others, faults.process) == (60, 30, 10, 100)
    assert (clock.ops, clock.gaps, clock.process) == (2.5, 0.5, 3.0)


def test_events_in_turns_have_no_totals() -> None:
    made = counting((FAULTS,), (SWITCHES,))
    for _ in range(2):
        made.account(Totals((0, 0, 0, 0, 0), [], []))
    assert made.totals() == ()
