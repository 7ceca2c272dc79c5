"""Comparison of two profiles, op by op: ops that take more or less of a round of the steps.

Noise alone changes the ratio of two medians. A change of an op or a step counts only if its ratio
differs from 1 by more than the bound on this noise (`intervals`).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dltune.compare.change import (
    Change,
    Difference,
    Verdict,
    differences,
    machine_facts,
    require_measured,
)
from dltune.schemas.profile import (
    Op,
    OpTime,
    Placement,
    Profile,
    Samples,
    Step,
    load,
)
from dltune.stats import t_quantile

# half the interquartile range of a normal distribution, in sigmas
QUARTILE = 0.6745
# of all ops that did not change, an op can be called changed so often
FALSE_ALARM = 0.05
# fewer runs do not show their spread
LEAST_SAMPLES = 3
# ops from which on their ratios say how much the machine's own changes do
LEAST_OPS = 10
# a ratio's logarithm goes no further: `math.exp` of more than 709 overflows
FURTHEST = 700.0


# Intervals of ratios
@dataclass(frozen=True)
class Pair:
    """The same quantity in A and in B."""

    a: OpTime | Samples
    b: OpTime | Samples

    @property
    def comparable(self) -> bool:
        return min(self.a.samples, self.b.samples) >= LEAST_SAMPLES and min(
            self.a.median, self.b.median
        ) > 0  # fmt: skip

    @property
    def logarithm(self) -> float:
        return math.log(self.b.median / self.a.median)


def intervals(pairs: Sequence[Pair]) -> list[tuple[float, float] | None]:
    """Return the interval of b / a for each pair; None where there are too few samples.

    All intervals together hold their true ratios with 1 - FALSE_ALARM (Bonferroni). The intervals
    bound the difference from 1 of a ratio of two medians by noise alone.

    A profile keeps for each op the median of a few runs and their spread (half the interquartile
    range over the median). Its standard deviation follows from the spread as for normal noise, with
    the expected quartiles of so few samples (Blom, Statistical Estimates and Transformed
    Beta-Variables, 1958), and the standard error of the median from that
    (sigma * sqrt(pi / 2 / n)). Unknowns are taken from the data or allowed for:

    - the spread of a handful of runs is uncertain: an op's is taken to be no less than the median
      of all ops, and the interval is Student's, not the normal one;
    - the machine was not the same at both times. How much that does shows in the ops that did not
      change: a variance is added to all, until half of the ops are within the quartiles of their
      noise (a random effect, as between studies in a meta-analysis: Paule and Mandel, J. Res. NBS
      87, 1982, here by medians, which changed ops do not move).
    """
    told = [pair for pair in pairs if pair.comparable]
    if not told:
        return [None] * len(pairs)
    floors = (
        statistics.median(_sigma(pair.a) for pair in told),
        statistics.median(_sigma(pair.b) for pair in told),
    )
    between = _between(told, floors)
    level = 1 - FALSE_ALARM / 2 / len(told)
    found: list[tuple[float, float] | None] = []
    for pair in pairs:
        if not pair.comparable:
            found.append(None)
            continue
        reach = t_quantile(level, pair.a.samples + pair.b.samples - 2)
        half = reach * math.hypot(_error(pair, floors), between)
        ends = (pair.logarithm - half, pair.logarithm + half)
        low, high = (math.exp(max(-FURTHEST, min(end, FURTHEST))) for end in ends)
        found.append((low, high))
    return found


def _between(pairs: Sequence[Pair], floors: tuple[float, float]) -> float:
    """The standard deviation that the two moments add to each logarithm."""
    if len(pairs) < LEAST_OPS:
        return 0.0
    middle = statistics.median(pair.logarithm for pair in pairs)
    off = [abs(pair.logarithm - middle) for pair in pairs]
    errors = [_error(pair, floors) for pair in pairs]

    def too_wide(between: float) -> bool:
        scores = (o - QUARTILE * math.hypot(e, between) for o, e in zip(off, errors, strict=True))
        return statistics.median(scores) > 0

    low, high = 0.0, max(off) / QUARTILE
    if not too_wide(low):
        return low
    for _ in range(60):
        guess = (low + high) / 2
        low, high = (guess, high) if too_wide(guess) else (low, guess)
    return high


def _error(pair: Pair, floors: tuple[float, float]) -> float:
    """Standard error of the logarithm of b / a."""
    return math.hypot(
        max(_sigma(pair.a), floors[0]) * math.sqrt(math.pi / 2 / pair.a.samples),
        max(_sigma(pair.b), floors[1]) * math.sqrt(math.pi / 2 / pair.b.samples),
    )


def _sigma(of: OpTime | Samples) -> float:
    """Standard deviation over the median."""
    # the upper quartile's place among the sorted samples, and the value expected there
    rank = 1 + 0.75 * (of.samples - 1)
    return of.spread / statistics.NormalDist().inv_cdf((rank - 0.375) / (of.samples + 0.25))


# Changes between two profiles
class OpChange(msgspec.Struct, frozen=True):
    """An op at the reported case: its change of one run, at `threads` and `placement`.

    `effect`: seconds that all its runs of a round take more in B than in A, by its own times and
    counts. `spread_a` and `spread_b` as in `OpTime`. `cases`: how many cases both measured, and
    `slower`, `faster`: in how many of them it is so beyond noise.
    """

    key: str
    type: str
    threads: int
    placement: Placement
    count_a: int
    count_b: int
    effect: float
    change: Change
    verdict: Verdict
    spread_a: float
    spread_b: float
    cases: int
    slower: int
    faster: int


class StepChange(msgspec.Struct, frozen=True):
    """A step's wall time; `name` is its signature where it has none."""

    name: str
    change: Change
    verdict: Verdict
    spread_a: float
    spread_b: float


class OneSided(msgspec.Struct, frozen=True):
    """An op of one profile only. `seconds`: of all its runs in a round, on one thread or (not
    measured by threads) under the job's own settings."""

    key: str
    count: int
    seconds: float


class Comparison(msgspec.Struct, frozen=True):
    """`ops`: the largest effect first. `total`: all ops that both have, as `OpChange.effect` adds
    them, in seconds of a round in A and in B. `same_graph`: the steps have the same signatures."""

    circumstances: tuple[Difference, ...]
    same_graph: bool
    steps: tuple[StepChange, ...]
    total: tuple[float, float]
    ops: tuple[OpChange, ...]
    appeared: tuple[OneSided, ...]
    went: tuple[OneSided, ...]


def compare_files(*paths: Path) -> Comparison:
    measured = [load(path) for path in paths]
    for path, found in zip(paths, measured, strict=True):
        require_measured(path, bool(found.ops or found.steps), found.partial)
    return compare(*measured)


def compare(a: Profile, b: Profile) -> Comparison:
    """Changes from A to B.

    An op is reported at the most threads that both measured: a step runs near that, on a
    machine whose cores are used. The verdict on it is from that case; the other cases are counted.
    """
    in_a, in_b = ({op.key: op for op in profile.ops} for profile in (a, b))
    common = [(in_a[key], in_b[key]) for key in in_a if key in in_b]
    ops = _ops(common)
    graphs = [{step.signature for step in profile.steps} for profile in (a, b)]
    return Comparison(
        circumstances=differences(_facts(a), _facts(b)),
        same_graph=graphs[0] == graphs[1],
        steps=tuple(_steps(a.steps, b.steps)),
        total=(
            sum(op.change.a * op.count_a for op in ops),
            sum(op.change.b * op.count_b for op in ops),
        ),
        ops=tuple(sorted(ops, key=lambda op: (-abs(op.effect), op.key))),
        appeared=_one_sided(op for op in b.ops if op.key not in in_a),
        went=_one_sided(op for op in a.ops if op.key not in in_b),
    )


def _facts(profile: Profile) -> dict[str, object]:
    return {
        **machine_facts(profile.machine),
        "framework": profile.framework.title,
        "framework build": profile.framework.git,
        "Python": profile.framework.python,
        "dltune": profile.dltune,
        "intra-op threads": profile.settings.intra,
        "inter-op threads": profile.settings.inter,
        "command": " ".join(profile.command),
        "counters": profile.counters.asked if profile.counters else "none",
        "incomplete because": profile.partial,
    }


def _steps(a: Sequence[Step], b: Sequence[Step]) -> Iterator[StepChange]:
    """Steps of the same graph; of steps whose graph is missing, the steps in the same place."""
    by_graph = {step.signature: step for step in b}
    in_a = {step.signature for step in a}
    rest = iter([step for step in b if step.signature not in in_a] if len(a) == len(b) else ())
    pairs = []
    for step in a:
        other = by_graph.get(step.signature) or next(rest, None)
        if other and other.wall.median > 0 and step.wall.median > 0:
            pairs.append((step, other))
    found = intervals([Pair(one.wall, other.wall) for one, other in pairs])
    for (one, other), interval in zip(pairs, found, strict=True):
        change = _change(one.wall.median, other.wall.median, interval)
        yield StepChange(
            name=one.name or one.signature,
            change=change,
            verdict=change.verdict,
            spread_a=one.wall.spread,
            spread_b=other.wall.spread,
        )


def _ops(common: Sequence[tuple[Op, Op]]) -> list[OpChange]:
    cases = []
    for index, (a, b) in enumerate(common):
        there = {(time.threads, time.placement): time for time in b.times}
        for time in a.times:
            same = there.get((time.threads, time.placement))
            if same and time.median > 0 and same.median > 0:
                cases.append((index, time, same))
    found = intervals([Pair(a, b) for _, a, b in cases])
    by_op: dict[int, list[tuple[OpTime, OpTime, Change]]] = {}
    for (index, one, other), interval in zip(cases, found, strict=True):
        change = _change(one.median, other.median, interval)
        by_op.setdefault(index, []).append((one, other, change))
    return [_op(*common[index], measured) for index, measured in by_op.items()]


def _op(a: Op, b: Op, cases: Sequence[tuple[OpTime, OpTime, Change]]) -> OpChange:
    # of the most threads the placement that is faster in A: a plan would take it
    one, other, change = max(cases, key=lambda case: (case[0].threads, -case[0].median))
    verdicts = Counter(found.verdict for _, _, found in cases)
    return OpChange(
        key=a.key,
        type=a.type,
        threads=one.threads,
        placement=one.placement,
        count_a=a.count,
        count_b=b.count,
        effect=other.median * b.count - one.median * a.count,
        change=change,
        verdict=change.verdict,
        spread_a=one.spread,
        spread_b=other.spread,
        cases=len(cases),
        slower=verdicts["slower"],
        faster=verdicts["faster"],
    )


def _change(a: float, b: float, interval: tuple[float, float] | None) -> Change:
    low, high = interval or (None, None)
    return Change(a, b, b / a, low, high)


def _one_sided(ops: Iterator[Op]) -> tuple[OneSided, ...]:
    found = [OneSided(op.key, op.count, _seconds(op) * op.count) for op in ops]
    return tuple(sorted(found, key=lambda op: (-op.seconds, op.key)))


def _seconds(op: Op) -> float:
    one = next((time.median for time in op.times if time.threads == 1), None)
    return one if one is not None else op.own or 0.0
