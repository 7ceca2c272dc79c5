"""Verdicts of a gate: from rounds to pass, fail or undecided, their history, and slow drifts.

`judge` compares the interval of a sample with a limit. `rounds_needed` estimates when an undecided
limit will be decided. The history file keeps the verdicts of past gates, and `alarms` finds drifts
in it that no single gate could show.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from dltune.base.documents import AMOUNT, NOT_JSON, POSITIVE, encode, refuse, struct_faults
from dltune.base.errors import UsageError
from dltune.gate import limits
from dltune.gate.limits import Config, Limit
from dltune.schemas.gate import (
    Kind,
    Outcome,
    Result,
    Unit,
    Verdict,
)
from dltune.stats import (
    BOLDNESS,
    Interval,
    anytime_median,
    anytime_ratio,
    bet,
    least_rounds,
    median_interval,
)

# Results of an undecided limit so far, and the rounds needed to decide it

# a value that needs more rounds than so many times the present number is taken to be at the
# limit
FORESEEN = 20.0


def rounds_needed(interval: Interval, limit: float) -> int | None:
    """About how many rounds in all decide `limit`, should the median stay where it is: an
    interval narrows with the root of their number (by a little less, as it holds at every look).
    None where that cannot be foreseen."""
    middle, bound = interval.median, interval.high if interval.median < limit else interval.low
    if not (0 < middle < math.inf and 0 < bound < math.inf) or middle == limit:
        return None
    width, distance = math.log(bound / middle), math.log(limit / middle)
    needed = interval.rounds * (width / distance) ** 2
    return math.ceil(needed) if needed <= FORESEEN * interval.rounds else None


def excluded(verdict: Verdict) -> float | None:
    """The most that it can be above the base, or for a limit of a value above that limit, as a
    share; None: nothing is excluded."""
    if verdict.high is None:
        return None
    return verdict.high / (1.0 if verdict.over == "ratio" else verdict.limit) - 1.0


# Pass, fail or undecided: the position of the interval against the limit

Over = Literal["ratio", "value"]
# with many rounds one more adds little: judge again after so many times as many
LOOK_AGAIN = 1.03


@dataclass
class Sample:
    """A metric on both sides: a value for each round, `base` and `head` of one round together.

    `paired`: True if both values of a round were measured together, which cancels the machine's
    influence; else `base` was all there before (a baseline). `exact`: the value does not vary.
    `missing`: why it could not be measured.
    """

    metric: str
    unit: Unit
    base: list[float] = field(default_factory=list)
    head: list[float] = field(default_factory=list)
    paired: bool = True
    exact: bool = False
    missing: str | None = None

    def of(self, side: str) -> list[float]:
        """The values of "base" or "head"."""
        return self.base if side == "base" else self.head


def judge(limit: Limit, sample: Sample, confidence: float) -> list[Verdict]:
    """A verdict for each limit of one metric.

    A ratio over the base passes when its whole interval is at or below the limit, and fails when
    the whole interval is above; the value of the head likewise.
    """
    asked: dict[Over, float | None] = {"ratio": limit.ratio, "value": limit.at_most}
    return [
        _verdict(over, most, sample, confidence) for over, most in asked.items() if most is not None
    ]


def overall(verdicts: Sequence[Verdict]) -> Outcome:
    """ "fail" when one fails, else "undecided" when one is, else "pass"."""
    outcomes = {verdict.outcome for verdict in verdicts}
    return "fail" if "fail" in outcomes else "undecided" if "undecided" in outcomes else "pass"


def held(verdict: Verdict, config: Config) -> bool:
    """True if it passes, or is undecided and the configuration lets that pass."""
    if verdict.outcome != "undecided":
        return verdict.outcome == "pass"
    most = excluded(verdict)
    return (math.inf if most is None else most) <= config.tolerated


def decided(verdicts: Sequence[Verdict]) -> bool:
    """True if more rounds can change nothing: each is decided or cannot be measured."""
    return all(v.outcome != "undecided" or v.rounds == 0 for v in verdicts)


def limits_for(config: Config, kind: Kind) -> tuple[Limit, ...]:
    """The limits to hold: those configured, else the default one of this kind of command."""
    return config.limits or (Limit(limits.DEFAULT[kind], ratio=limits.DEFAULT_RATIO),)


def least_baseline(confidence: float) -> int:
    """Least rounds of a baseline whose median has an interval for half of the allowed error of
    both sides together: of n values, their whole range misses it with 2 ** (1 - n)."""
    return math.ceil(1 - math.log2((1 - confidence) / 2))


def next_look(rounds: int) -> int:
    """Number of rounds after which to judge again: after many rounds, one more adds little."""
    return max(rounds + 1, math.ceil(rounds * LOOK_AGAIN))


def _verdict(over: Over, limit: float, sample: Sample, confidence: float) -> Verdict:
    if sample.missing or not sample.head or (over == "ratio" and not sample.base):
        interval = None
        outcome: Outcome = "undecided"
        why = f"not measured: {sample.missing or 'no value was observed'}"
    else:
        interval = (_ratio if over == "ratio" else _value)(sample, confidence)
        outcome, why = _outcome(over, limit, sample, interval)
    low, high = interval.bounds if interval else (None, None)
    return Verdict(
        metric=sample.metric,
        unit=sample.unit,
        over=over,
        limit=limit,
        outcome=outcome,
        median=interval.median if interval and math.isfinite(interval.median) else None,
        low=low,
        high=high,
        base=statistics.median(sample.base) if sample.base else None,
        head=statistics.median(sample.head) if sample.head else None,
        rounds=interval.rounds if interval else 0,
        why=why,
        needed=_needed(sample, interval, limit, confidence)
        if interval and outcome == "undecided"
        else None,
    )


def _needed(sample: Sample, interval: Interval, limit: float, confidence: float) -> int | None:
    """About how many rounds decide it; of a baseline's own spread no round takes anything."""
    if not sample.paired:
        return None
    least = least_rounds(confidence, paired=sample.base != [])
    return least if interval.rounds < least else rounds_needed(interval, limit)


def _ratio(sample: Sample, confidence: float) -> Interval:
    floor = limits.floor(sample.metric)
    if sample.exact:
        return _certain(over_base(sample.head[0], sample.base[0], floor), sample)
    if sample.paired:
        pairs = zip(sample.head, sample.base, strict=True)
        return anytime_ratio([over_base(h, b, floor) for h, b in pairs], confidence)
    # each side's median errs with half of the error allowed for both together
    either = 1 - (1 - confidence) / 2
    head = anytime_median(sample.head, either)
    base = median_interval(sample.base, either)
    median, low, high = over_base(head.median, base.median, floor), -math.inf, math.inf
    if base.confidence >= either and head.low > -math.inf:
        low, high = over_base(head.low, base.high, floor), over_base(head.high, base.low, floor)
    return Interval(median, low, high, confidence, head.rounds)


def _value(sample: Sample, confidence: float) -> Interval:
    if sample.exact:
        return _certain(sample.head[0], sample)
    return anytime_median(sample.head, confidence)


def _certain(value: float, sample: Sample) -> Interval:
    return Interval(value, value, value, 1.0, len(sample.head))


def over_base(head: float, base: float, floor: float) -> float:
    """The ratio of two values; 1 where they differ by less than `floor`, inf over 0."""
    if abs(head - base) < floor or head == base:
        return 1.0
    return head / base if base > 0 else math.inf


def _outcome(over: Over, limit: float, sample: Sample, interval: Interval) -> tuple[Outcome, str]:
    """Outcome that follows from the interval for the limit, and the reason in a sentence."""
    unbounded = interval.low == -math.inf and interval.high == math.inf
    rounds = interval.rounds
    if unbounded and over == "ratio" and not (sample.paired or sample.exact):
        few = f"{rounds} rounds against {len(sample.base)} are too few for an interval"
        return "undecided", few
    subject = "the value is" if sample.exact else "the whole interval is"
    if interval.high <= limit:
        return "pass", f"{subject} at or below the limit"
    if interval.low > limit:
        return "fail", f"{subject} above the limit"
    if unbounded:
        few = f"{rounds} round{'s are' if rounds > 1 else ' is'} too few for an interval"
        return "undecided", few
    if over == "ratio" and not (sample.paired or sample.exact):
        why = "the interval includes the limit; a baseline with more rounds would narrow it"
        return "undecided", why
    return "undecided", "the interval includes the limit"


# The history file: a line of JSON for each gate, appended; and its entries when read again

SCHEMA = "dltune.gate-history/1"


class Point(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A verdict of one gate, with the values of its result.

    `metric`, `unit`, `over`, `limit`, `outcome`, `median`, `low`, `high`, `head`: as in the
      verdict.
    `ratios`: head divided by base in each round that measured both together.
    """

    metric: str
    unit: Unit
    over: str
    limit: Annotated[float, AMOUNT]
    outcome: Outcome
    median: Annotated[float | None, AMOUNT]
    low: Annotated[float | None, AMOUNT]
    high: Annotated[float | None, AMOUNT]
    head: Annotated[float | None, AMOUNT]
    ratios: tuple[Annotated[float, POSITIVE], ...] = ()


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the history file: one gate.

    `machine`: fingerprint of the machine.
    `base`, `head`: commits.
    `outcome`: outcome of the gate.
    `points`: verdicts.
    `command`: measured command. Gates of the same command belong together.
    """

    schema: str
    created: str
    machine: str
    base: str
    head: str
    outcome: Outcome
    points: tuple[Point, ...]
    command: tuple[str, ...] = ()


def entry(result: Result, *, paired: bool) -> Entry:
    """The line of a result. `paired`: whether both sides of a round were measured together."""
    points = []
    for verdict in result.verdicts:
        point = msgspec.convert(verdict, Point, from_attributes=True)
        if paired and verdict.over == "ratio":
            point = msgspec.structs.replace(point, ratios=_ratios(result, verdict.metric))
        points.append(point)
    return Entry(
        schema=SCHEMA,
        created=result.created,
        machine=result.machine.fingerprint,
        base=result.base.commit or result.base.name,
        head=result.head.commit or result.head.name,
        outcome=result.outcome,
        points=tuple(points),
        command=result.command,
    )


def _ratios(result: Result, metric: str) -> tuple[float, ...]:
    """Ratios of a metric's rounds; none of a metric that does not vary, or that measured 0."""
    base, head = (
        next((one for one in result.measured.get(side, ()) if one.metric == metric), None)
        for side in ("base", "head")
    )
    if base is None or head is None or base.exact:
        return ()
    both = zip(head.values, base.values, strict=True)
    ratios = (over_base(h, b, limits.floor(metric)) for h, b in both)
    return tuple(float(f"{ratio:.6g}") for ratio in ratios if 0 < ratio < math.inf)


def load(path: Path) -> list[Entry]:
    """All gates in the file, oldest first; none where there is no file.

    Raises UsageError, which names the line, when the file is something else.
    """
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", remedy=None) from None
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            found = msgspec.json.decode(line, type=Entry)
        except NOT_JSON as error:
            raise UsageError(
                f"{path}, line {number}, is not a gate result: {error}",
                remedy="use another history file",
            ) from None
        if found.schema != SCHEMA:
            raise UsageError(
                f"{path}, line {number}, has schema {found.schema!r}, not {SCHEMA!r}",
                remedy="use another history file",
            )
        refuse(f"{path}, line {number}", struct_faults("", found))
        entries.append(found)
    return entries


def of_command(path: Path, command: tuple[str, ...]) -> list[Entry]:
    """Those of `load` that measured this command: several jobs can share a file."""
    return [one for one in load(path) if one.command == command]


def append(path: Path, added: Entry) -> None:
    """Add a line, whole or not at all, also when several gates end at once. Raises UsageError."""
    line = encode(added) + b"\n"
    try:
        with open(path, "ab", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file.fileno()).st_size
            try:
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):  # only a file can be cut
                    file.truncate(size)
                if size == 0 and path.is_file() and not path.is_symlink():
                    path.unlink()
                raise
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", remedy=None) from None


# A slow drift: none of the gates fails, but all lean in the same direction

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

    Where nothing changed, base and head of a round could be exchanged. So, given how far their log
    ratios are from 0, the signs are fair coins, whatever the machine did. A gate's evidence is what
    a bet on these coins (dltune.stats) makes of 1; where nothing changed that is 1 on average. The
    products of the gates' evidence, summed over all gates at which a drift can have begun, are an
    e-detector (Shiryaev and Roberts; Shin, Ramdas and Rinaldo, E-detectors, 2022): within n gates
    without a drift it reaches `ALARMS` with a chance of n / ALARMS at most.
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
                found.append(_drift_verdict(course))
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


def _drift_verdict(course: _Course) -> Verdict:
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
