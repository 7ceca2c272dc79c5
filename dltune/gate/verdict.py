"""From rounds to pass, fail or undecided: the position of the interval against the limit."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from dltune.gate import metrics
from dltune.gate.config import Config, Limit
from dltune.gate.outlook import excluded, rounds_needed
from dltune.schemas.gate import (
    Kind,
    Outcome,
    Unit,
    Verdict,
)
from dltune.stats import Interval, anytime_median, anytime_ratio, least_rounds, median_interval

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
    return config.limits or (Limit(metrics.DEFAULT[kind], ratio=metrics.DEFAULT_RATIO),)


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
    floor = metrics.floor(sample.metric)
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
