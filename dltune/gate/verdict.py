"""From rounds to pass, fail or undecided: where the interval lies beside the limit."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from dltune.documents.gate import Kind, Outcome, Unit, Verdict
from dltune.gate import metrics
from dltune.gate.config import Config, Limit
from dltune.stats.anytime import anytime_median, anytime_ratio
from dltune.stats.signs import median_interval


@dataclass
class Sample:
    """A metric on both sides: a value for each round, `base` and `head` of one round together.

    `paired`: whether the two of a round were measured together, so that what the machine did then
    cancels out; else `base` was all there before (a baseline). `exact`: the value does not vary.
    `missing`: why it could not be measured.
    """

    metric: str
    unit: Unit
    base: list[float] = field(default_factory=list)
    head: list[float] = field(default_factory=list)
    paired: bool = True
    exact: bool = False
    missing: str | None = None


def judge(limit: Limit, sample: Sample, confidence: float) -> list[Verdict]:
    """A verdict for each limit of one metric.

    A ratio over the base passes when its whole interval lies at or below the limit, and fails when
    the whole interval lies above; the value of the head likewise.
    """
    found = []
    if limit.ratio is not None:
        found.append(_ratio(limit.ratio, sample, confidence))
    if limit.at_most is not None:
        found.append(_value(limit.at_most, sample, confidence))
    return found


def overall(verdicts: Sequence[Verdict]) -> Outcome:
    """ "fail" when one fails, else "undecided" when one is, else "pass"."""
    outcomes = {verdict.outcome for verdict in verdicts}
    return "fail" if "fail" in outcomes else "undecided" if "undecided" in outcomes else "pass"


def decided(verdicts: Sequence[Verdict]) -> bool:
    """Whether more rounds can change nothing: all are decided, or lack what no round brings."""
    return all(v.outcome != "undecided" or v.rounds == 0 for v in verdicts)


def limits_for(config: Config, kind: Kind) -> tuple[Limit, ...]:
    """The limits to hold: those configured, else the default one of this kind of command."""
    if config.unlimited:
        return (Limit(metrics.DEFAULT[kind], ratio=metrics.DEFAULT_RATIO),)
    return config.limits


def _ratio(limit: float, sample: Sample, confidence: float) -> Verdict:
    if sample.missing or not sample.head or not sample.base:
        return _missing("ratio", limit, sample)
    floor = known.floor if (known := metrics.metric(sample.metric)) else 0.0
    if sample.exact:
        ratio = _over(sample.head[0], sample.base[0], floor)
        return _judged("ratio", limit, sample, ratio, ratio, ratio, len(sample.head))
    if sample.paired:
        pairs = zip(sample.head, sample.base, strict=True)
        found = anytime_ratio([_over(h, b, floor) for h, b in pairs], confidence)
        return _judged("ratio", limit, sample, found.median, found.low, found.high, found.rounds)
    # each side's median errs with half of what both may err together
    either = 1 - (1 - confidence) / 2
    head = anytime_median(sample.head, either)
    base = median_interval(sample.base, either)
    if base.confidence < either or min(sample.base) <= 0:
        return _judged("ratio", limit, sample, _over(head.median, base.median, floor), None, None,
                       head.rounds)  # fmt: skip
    return _judged(
        *("ratio", limit, sample, _over(head.median, base.median, floor)),
        *(_over(head.low, base.high, floor), _over(head.high, base.low, floor), head.rounds),
    )


def _value(limit: float, sample: Sample, confidence: float) -> Verdict:
    if sample.missing or not sample.head:
        return _missing("value", limit, sample)
    if sample.exact:
        value = sample.head[0]
        return _judged("value", limit, sample, value, value, value, len(sample.head))
    found = anytime_median(sample.head, confidence)
    return _judged("value", limit, sample, found.median, found.low, found.high, found.rounds)


def _over(head: float, base: float, floor: float) -> float:
    if abs(head - base) < floor or head == base:
        return 1.0
    return head / base if base > 0 else math.inf


def _judged(
    over: str,
    limit: float,
    sample: Sample,
    median: float,
    low: float | None,
    high: float | None,
    rounds: int,
) -> Verdict:
    low = low if low is not None and math.isfinite(low) else None
    bounded = high is not None and math.isfinite(high)
    outcome: Outcome = "undecided"
    if high is not None and bounded and high <= limit:
        outcome, why = "pass", "the whole interval lies within the limit"
    elif (low is not None and low > limit) or median == math.inf == high:
        outcome, why = "fail", "the whole interval lies beyond the limit"
    elif low is None and not bounded and over == "ratio" and not sample.paired:
        why = f"{rounds} rounds against {len(sample.base)} are too few for an interval"
        if 0 in sample.base:
            why = "the base measured 0, over which there is no ratio"
    elif low is None and not bounded:
        why = f"{rounds} round{'s are' if rounds > 1 else ' is'} too few for an interval"
    else:
        why = "the interval holds the limit"
    if sample.exact:
        why = "within the limit" if outcome == "pass" else "beyond the limit"
    return Verdict(
        metric=sample.metric,
        unit=sample.unit,
        over="ratio" if over == "ratio" else "value",
        limit=limit,
        outcome=outcome,
        median=median if math.isfinite(median) else None,
        low=low,
        high=high if bounded else None,
        base=statistics.median(sample.base) if sample.base else None,
        head=statistics.median(sample.head) if sample.head else None,
        rounds=rounds,
        why=why,
    )


def _missing(over: str, limit: float, sample: Sample) -> Verdict:
    return Verdict(
        metric=sample.metric,
        unit=sample.unit,
        over="ratio" if over == "ratio" else "value",
        limit=limit,
        outcome="undecided",
        median=None,
        low=None,
        high=None,
        base=statistics.median(sample.base) if sample.base else None,
        head=statistics.median(sample.head) if sample.head else None,
        rounds=0,
        why=f"not measured: {sample.missing or 'nothing was seen of it'}",
    )
