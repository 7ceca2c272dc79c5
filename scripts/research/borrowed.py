"""An op's curve filled in with the shapes of other ops of its type.

Hill climbing measures every op for itself. Ops of one type run the same code, so that how they
scale mostly depends on how much work there is for each thread: T(n) / T(1) of an op that was never
measured on n threads is taken from those of its type that take about as long on one thread. Where
the op has samples of its own, the borrowed shape is bent to pass through them.

`fill_gaps.py` finds out whether this holds; dltune itself does not use it
(docs/explanation/model.md).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dltune.simulate.op_time import Case

# how many ops of the type lend their shape, weighed by how near their time on one thread is
NEIGHBOURS = 5
Shape = Mapping[Case, float]


@dataclass(frozen=True)
class Shapes:
    """By op type: seconds on one thread and T(n) / T(1) by case, of each op that was measured."""

    by_type: Mapping[str, Sequence[tuple[float, Shape]]]

    @classmethod
    def of(cls, ops: Sequence[tuple[str, Mapping[Case, float]]]) -> Shapes:
        """From (type, seconds by case); ops without a time on one thread lend nothing."""
        found: dict[str, list[tuple[float, Shape]]] = {}
        for kind, seconds in ops:
            one = seconds.get((1, "spread"))
            if one:
                shape = {case: value / one for case, value in seconds.items()}
                found.setdefault(kind, []).append((one, shape))
        return cls(found)

    def shape(self, kind: str, one: float, cases: Sequence[Case]) -> dict[Case, float]:
        """T(n) / T(1) of an op of that type that takes `one` seconds on one thread.

        The weighted geometric mean of its neighbours; cases that none of them has are left out.
        """
        found: dict[Case, float] = {}
        known = self.by_type.get(kind, ())
        for case in cases:
            near = sorted(
                (abs(math.log(other / one)), shape[case]) for other, shape in known if case in shape
            )[:NEIGHBOURS]
            if near:
                weights = [1 / (0.1 + distance) for distance, _ in near]
                logs = sum(w * math.log(ratio) for w, (_, ratio) in zip(weights, near, strict=True))
                found[case] = math.exp(logs / sum(weights))
        return found

    def filled(
        self, kind: str, samples: Mapping[Case, float], cases: Sequence[Case]
    ) -> dict[Case, float]:
        """Seconds at `cases`, as far as the type lends a shape; samples stay what they are.

        Between two samples of a placement, and beyond them, the factor from borrowed to measured is
        interpolated along log n. Raises KeyError without a sample on one thread.
        """
        one = samples[1, "spread"]
        wanted = [*cases, *samples]
        shape = {(1, "spread"): 1.0, **self.shape(kind, one, wanted)}
        found = {}
        for case in cases:
            if case in samples:
                found[case] = samples[case]
            elif case in shape:
                found[case] = one * shape[case] * _factor(case, samples, shape, one)
        return found


def _factor(case: Case, samples: Mapping[Case, float], shape: Shape, one: float) -> float:
    """What the borrowed shape is wrong by at the op's samples, carried to `case`."""
    threads, placement = case
    known = sorted(
        (n, math.log(seconds / (one * shape[n, p])))
        for (n, p), seconds in samples.items()
        if (n, p) in shape and (p == placement or n == 1)
    )
    at = bisect.bisect_left(known, threads, key=lambda point: point[0])
    if at == 0 or at == len(known):
        return math.exp(known[min(at, len(known) - 1)][1])
    (n0, f0), (n1, f1) = known[at - 1 : at + 1]
    part = math.log(threads / n0) / math.log(n1 / n0)
    return math.exp(f0 + (f1 - f0) * part)
