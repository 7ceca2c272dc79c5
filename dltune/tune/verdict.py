"""Verdict of the rounds of a trial, at any time.

The interval of the ratios holds the true ratio at all looks together with probability CONFIDENCE
(`anytime_ratio`), so a setting that does nothing is said to help or to hurt in at most
1 - CONFIDENCE of its trials, however long they are. The best of many trials is more often lucky
than one trial is: therefore the choice is judged again, in rounds that chose nothing.

1. The interval is below 1: it helps. It is above 1: it hurts.
2. The interval is within 1 +- MARGIN: no difference seen, and there is none that matters.
3. It gains less than MARGIN with the odds of FUTILE, and does not seem to hurt either: no
   difference seen. This only ends a trial early; it never makes it help or hurt.
4. After LOOKS rounds, or FIRST where the median gains 2 MARGIN, the trial is given up; one that is
   taken up again, after MOST. Where the median is beyond 2 MARGIN and nearly all rounds on its
   side of 1 (a sign test, LEANING), it is not proven; else no difference seen.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dltune.schemas.settings import Measured, Verdict
from dltune.stats import Interval, anytime_ratio, sign_test

# of a trial; of the final comparison, which is one alone
CONFIDENCE, FINAL_CONFIDENCE = 0.995, 0.99
# a difference in step time that is worth nobody's while
MARGIN = 0.015
FUTILE = 0.5
# how likely so many rounds or more on one side of 1 are at most, where each side is as likely, for
# a trial to be not proven: few of those that do nothing are
LEANING = 0.005
# rounds: before which nothing is dropped; the fewest that can decide; the most of a first look,
# where no gain shows and where one does (others wait meanwhile); the most of all
LEAST, DECIDING, LOOKS, FIRST, MOST = 5, 9, 12, 24, 60

Decided = Literal["helps", "hurts", "not proven", "no difference seen"]


@dataclass(frozen=True)
class Judgement:
    verdict: Decided
    why: str = ""


def judge(
    ratios: Sequence[float],
    confidence: float = CONFIDENCE,
    rounds: tuple[int, int] = (LOOKS, FIRST),
) -> Judgement | None:
    """The verdict after these rounds; None: go on. Ratios are numbers above 0, one at least.
    `rounds`: after so many it is given up, where no gain shows and where one does."""
    if len(ratios) < LEAST:
        return None
    interval = anytime_ratio(ratios, confidence)
    if proven := _proven(interval):
        return Judgement(proven)
    if interval.low > 1 - MARGIN and interval.high < 1 + MARGIN:
        return Judgement("no difference seen", f"any difference is below {MARGIN:.1%}")
    if interval.median < 1 + 2 * MARGIN and anytime_ratio(ratios, FUTILE).low > 1 - MARGIN:
        return Judgement("no difference seen", f"a gain of {MARGIN:.1%} is unlikely")
    if len(ratios) >= rounds[1 if promising(ratios) else 0]:
        return _given_up(ratios)
    return None


def promising(ratios: Sequence[float]) -> bool:
    """True if the rounds show a gain that is worth more rounds."""
    return len(ratios) >= LEAST and statistics.median(ratios) < 1 - 2 * MARGIN


def _given_up(ratios: Sequence[float]) -> Judgement:
    """Judgement of rounds that are over and prove nothing."""
    rounds, median = len(ratios), statistics.median(ratios)
    slower, faster = sum(r > 1 for r in ratios), sum(r < 1 for r in ratios)
    for leans, beyond, how in (
        (median > 1 + 2 * MARGIN, slower, "slower"),
        (median < 1 - 2 * MARGIN, faster, "faster"),
    ):
        if leans and sign_test(rounds, beyond) <= LEANING:
            return Judgement("not proven", f"{how} in {beyond} of {rounds} rounds")
    spread = statistics.pstdev(math.log(r) for r in ratios)
    why = f"no difference proven in {rounds} rounds, which vary by {spread:.0%}"
    return Judgement("no difference seen", why)


def _proven(interval: Interval) -> Literal["helps", "hurts"] | None:
    if interval.high < 1:
        return "helps"
    return "hurts" if interval.low > 1 else None


def measured(ratios: Sequence[float], confidence: float = CONFIDENCE) -> Measured | None:
    """The rounds as a plan presents them; None without any."""
    if not ratios:
        return None
    interval = anytime_ratio(ratios, confidence)
    return Measured(interval.median, *interval.bounds, confidence, interval.rounds)


def inverse(measured: Measured) -> Measured:
    """Return the measurement, seen from the other side."""
    return Measured(
        ratio=1 / measured.ratio,
        low=1 / measured.high if measured.high else None,
        high=1 / measured.low if measured.low else None,
        confidence=measured.confidence,
        rounds=measured.rounds,
    )


def verdict_of(ratios: Sequence[float], confidence: float) -> Verdict:
    """The verdict of rounds that are over."""
    if not ratios:
        return "undecided"
    if proven := _proven(anytime_ratio(ratios, confidence)):
        return proven
    return _given_up(ratios).verdict if len(ratios) >= DECIDING else "undecided"


def agree(ratios: Sequence[float]) -> bool:
    """True if final rounds agree with the trials that chose: they prove the gain by themselves, or
    their median shows one that is worth having and nothing proves the contrary.

    To prove it twice would take as many rounds again as all trials on the way there.
    """
    said = verdict_of(ratios, FINAL_CONFIDENCE)
    likely = bool(ratios) and statistics.median(ratios) < 1 - MARGIN
    return said == "helps" or (said != "hurts" and likely)
