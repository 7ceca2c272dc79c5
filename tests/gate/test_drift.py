"""A drift is found in a history of gates that all passed, and seldom where there is none."""

from __future__ import annotations

import math
import random

import decided
import msgspec
import pytest

from dltune.base.documents import struct_faults
from dltune.gate import formats, verdicts
from dltune.schemas import gate as doc

SPREAD = 0.049  # of the log ratio of launches: docs/explanation/decisions/gate-launches.md


def commit(day: int) -> doc.Revision:
    return doc.Revision(f"day {day}", f"{day:02d}" * 20)


def gate(
    day: int, logs: list[float], outcome: doc.Outcome = "pass", since: int | None = None
) -> verdicts.Entry:
    """One gate of the history, of that day's commit against the one of the day `since` (before):
    its rounds' log ratios."""
    head = tuple(math.exp(log) for log in logs)
    measured = {
        "base": (doc.Measured("step_time", "s", (1.0,) * len(logs)),),
        "head": (doc.Measured("step_time", "s", head),),
    }
    verdict = decided.verdict(outcome=outcome)
    result = decided.result(
        verdict,
        measured=measured,
        created=f"2026-01-{day:02d}T00:00:00+00:00",
        base=commit(day - 1 if since is None else since),
        head=commit(day),
    )
    return verdicts.entry(result, paired=True)


def course(random_: random.Random, shifts: list[float], launches: int) -> list[verdicts.Entry]:
    return [
        gate(day, [random_.gauss(shift, SPREAD) for _ in range(launches)])
        for day, shift in enumerate(shifts, 1)
    ]


def first_alarm(entries: list[verdicts.Entry]) -> int | None:
    """After how many gates a drift is told first."""
    return next((n for n, found in enumerate(verdicts.alarms(entries), 1) if found), None)


def test_one_percent_a_commit_over_ten_is_found() -> None:
    random_ = random.Random(1)
    found = 0
    for _ in range(20):
        entries = course(random_, [0.0] * 10 + [0.01] * 10, launches=60)
        after = first_alarm(entries)
        assert after is None or after > 5
        found += after is not None
    assert found >= 18


def test_what_is_told_of_a_drift() -> None:
    entries = course(random.Random(2), [0.0] * 6 + [0.01] * 14, launches=60)
    after = first_alarm(entries)
    assert after is not None
    (verdict,) = verdicts.alarms(entries)[after - 1]
    assert (verdict.over, verdict.outcome, verdict.metric) == ("drift", "fail", "step_time")
    assert verdict.median is not None
    assert abs(math.log(verdict.median) - 0.01 * verdict.rounds) < 0.03
    first = after - verdict.rounds + 1
    told = f"over {verdict.rounds} gates since {first:02d}{first:02d}{first:02d}{first:02d}"
    assert told in formats.sentence(verdict)
    assert verdicts.alarms(entries)[after] == []  # it counts anew


@pytest.mark.parametrize("tails", ["gaussian", "heavy"])
def test_seldom_where_nothing_changes(tails: str) -> None:
    random_ = random.Random(3)

    def noise() -> float:
        heavy = random_.random() < 0.1 and tails == "heavy"
        return random_.gauss(0.0, SPREAD * (8.0 if heavy else 1.0))

    histories, gates = 200, 20
    alarms = sum(
        first_alarm([gate(day + 1, [noise() for _ in range(20)]) for day in range(gates)])
        is not None
        for _ in range(histories)
    )
    bound = gates / verdicts.ALARMS
    assert alarms <= histories * (bound + 3 * math.sqrt(bound * (1 - bound) / histories))


def test_gates_that_failed_or_were_not_paired_do_not_count() -> None:
    slower = [0.05 + 0.001 * place for place in range(60)]
    assert verdicts.alarms([gate(1, slower)]) != [[]]
    assert verdicts.alarms([gate(1, slower, outcome="fail")]) == [[]]
    result = decided.result(decided.verdict())
    assert verdicts.entry(result, paired=False).points[0].ratios == ()


def test_a_result_fails_by_the_drift_that_it_makes_evident() -> None:
    result = decided.result(decided.verdict())
    calm, slow = gate(1, [0.01, -0.01] * 20), gate(2, [0.05 + 0.001 * n for n in range(60)])
    assert verdicts.judged(result, [calm]) is result
    failed = verdicts.judged(result, [calm, slow])
    assert (failed.outcome, failed.passed, len(failed.verdicts)) == ("fail", False, 2)
    assert struct_faults("", failed) == []
    again = msgspec.json.decode(msgspec.json.encode(failed), type=doc.Result)
    assert again == failed


def test_a_branch_that_is_gated_as_it_grows_counts_once() -> None:
    """Eight gates of one branch, each against where it began."""
    first, others = gate(1, [0.0] * 20), [gate(day, [0.0] * 20, since=1) for day in range(2, 10)]
    last = gate(10, [0.0] * 20, since=9)
    assert verdicts.chain([first, *others]) == [first, others[-1]]
    assert verdicts.chain([first, *others, last]) == [first, others[-1], last]
    slow = [0.012 + 0.05 * (-1) ** place for place in range(40)]
    growing = [gate(day, slow, since=1) for day in range(2, 30)]
    assert verdicts.judged(decided.result(decided.verdict()), growing).outcome == "pass"


def test_gates_that_ran_beside_each_other_stand_in_any_order() -> None:
    first, second, third = (gate(day, [0.0] * 20) for day in (1, 2, 3))
    assert verdicts.chain([second, first, third]) == [first, second, third]


def test_the_same_commit_twice_is_a_chain_of_its_own() -> None:
    again = [gate(3, [0.0] * 20, since=3) for _ in range(3)]
    assert verdicts.chain(again) == [again[-1]]


def test_what_differs_by_less_than_the_floor_is_equal() -> None:
    faults = decided.verdict("page_faults", unit="count")
    measured = {
        "base": (doc.Measured("page_faults", "count", (100.0, 100.0, 0.0)),),
        "head": (doc.Measured("page_faults", "count", (109.0, 150.0, 50.0)),),
    }
    entry = verdicts.entry(decided.result(faults, measured=measured), paired=True)
    assert entry.points[0].ratios == (1.0, 1.5)  # over 0 there is no ratio
