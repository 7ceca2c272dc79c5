"""A slow drift: gates of which none fails, and that lean one way all the same.

Where nothing changed, base and head of a round could be exchanged. So, given how far their log
ratios are from 0, the signs are fair coins, whatever the machine did. A gate's evidence is what a
bet on these coins (dltune.stats) makes of 1; where nothing changed that is 1 on average.
The products of the gates' evidence, summed over all gates at which a drift can have begun, are an
e-detector (Shiryaev and Roberts; Shin, Ramdas and Rinaldo, E-detectors, 2022): within n gates
without a drift it reaches `ALARMS` with a chance of n / ALARMS at most.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from dltune.gate.history import Entry, Point
from dltune.schemas.gate import Result, Verdict
from dltune.stats import BOLDNESS, bet

# gates without a drift, on average and at the least, for one alarm
ALARMS = 200
# one that suits rounds that differ by 5 % of themselves and a drift of 1 %, and those of a verdict
BETS = (4.0, *BOLDNESS)


@dataclass
class _Course:
    """A metric's course: the gates since the last alarm, with their evidence for each of `BETS`."""

    gates: list[tuple[Entry, Point, tuple[float, ...]]] = field(default_factory=list)
    detectors: list[float] = field(default_factory=lambda: [0.0] * len(BETS))


def alarms(entries: Sequence[Entry]) -> list[list[Verdict]]:
    """Return for each gate, oldest first, a failed verdict for each metric whose drift it makes
    evident; the verdict's `rounds` are gates. After an alarm the count begins again.

    Only rounds that were measured in pairs count, and no gate that failed, since that was reported.
    `entries` are a chain.
    """
    told = []
    courses: dict[str, _Course] = {}
    for entry in entries:
        found = []
        for point in entry.points:
            if not point.ratios or point.outcome == "fail":
                continue
            course = courses.setdefault(point.metric, _Course())
            logs = [math.log(ratio) for ratio in point.ratios]
            each = tuple(bet(logs, boldness) for boldness in BETS)
            course.gates.append((entry, point, each))
            course.detectors = [
                (1.0 + before) * e for before, e in zip(course.detectors, each, strict=True)
            ]
            if statistics.fmean(course.detectors) >= ALARMS:
                found.append(_verdict(course))
                del courses[point.metric]
        told.append(found)
    return told


def chain(entries: Sequence[Entry]) -> list[Entry]:
    """Return the last gate and the gates whose changes it builds on, oldest first: each head is
    the base of the next gate. A change that was gated again and again, as a growing branch is,
    is not taken for as many; gates that ran at the same time can come in any order."""
    found = [entries[-1]]
    by_head = {entry.head: entry for entry in entries[:-1] if entry.head != entry.base}
    while before := by_head.pop(found[-1].base, None):
        found.append(before)
    return found[::-1]


def judged(result: Result, entries: Sequence[Entry]) -> Result:
    """The result with the drifts that it makes evident; `entries` end with its own."""
    if not (found := alarms(chain(entries))[-1]):
        return result
    verdicts = (*result.verdicts, *found)
    return msgspec.structs.replace(result, verdicts=verdicts, outcome="fail", passed=False)


def _verdict(course: _Course) -> Verdict:
    """From where the evidence is strongest on."""
    start = max(range(len(course.gates)), key=lambda first: _since(course, first))
    gates = course.gates[start:]
    ratio = math.prod(statistics.median(point.ratios) for _, point, _ in gates)
    last = gates[-1][1]
    since, count = gates[0][0], len(gates)
    return Verdict(
        metric=last.metric,
        unit=last.unit,
        over="drift",
        limit=1.0,
        outcome="fail",
        passed=False,
        median=ratio,
        low=None,
        high=None,
        base=None,
        head=last.head,
        rounds=count,
        why=f"slow drift: {ratio - 1:+.1%} over {count} gate{'s' * (count != 1)} since "
        f"{since.head[:10]} of {since.created[:10]}, although none of them failed; without drift, "
        f"a metric raises at most one such alarm in {ALARMS} gates",
    )


def _since(course: _Course, first: int) -> float:
    """The best of the bets from that gate on."""
    each = [evidence for _, _, evidence in course.gates[first:]]
    return max(map(math.prod, zip(*each, strict=True)))
