"""An op's time on thread counts that nobody measured, by a stated law.

    T(n) = serial + parallel / n + spawn * n

Amdahl's law with a cost for each thread: the simplest curve that falls and rises again, as all of
the paper's op times do ("the variance of execution time is shown as a convex function", III-C).
Its minimum is at n = sqrt(parallel / spawn).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dltune.simulate.model.curve import Case, Curve


@dataclass(frozen=True)
class Law:
    """Seconds on one thread that cannot be divided, that can, and per thread."""

    serial: float
    parallel: float
    spawn: float

    def seconds(self, threads: int) -> float:
        return self.serial + self.parallel / threads + self.spawn * threads

    @property
    def optimum(self) -> float:
        """The thread count at the minimum; infinite when threads cost nothing."""
        return math.sqrt(self.parallel / self.spawn) if self.spawn > 0 else math.inf

    def curve(self, cases: Iterable[Case]) -> Curve:
        """The law at these cases; it does not tell placements apart."""
        return Curve.of({(n, placement): self.seconds(n) for n, placement in cases})


def fitted(samples: Sequence[tuple[int, float]]) -> Law:
    """The law nearest to (threads, seconds) samples: least relative squares, no negative part.

    With samples at one count, all is parallel; with two, threads cost nothing unless the time rose.
    Raises ValueError when there is no sample, or one with no time.
    """
    if not samples or any(seconds <= 0 for _, seconds in samples):
        raise ValueError("a law needs samples with times above 0")
    counts = len({n for n, _ in samples})
    # which parts (by index) may stand in the law, the simplest first
    shapes = (
        [(1,)]
        if counts == 1
        else itertools.chain.from_iterable(
            itertools.combinations(range(3), size) for size in range(1, min(counts, 3) + 1)
        )
    )
    best: tuple[float, Law] | None = None
    for shape in shapes:
        parts = _least_squares(samples, shape)
        if parts is None or min(parts) < 0:
            continue
        law = Law(*parts)
        error = math.fsum((law.seconds(n) / s - 1) ** 2 for n, s in samples)
        # a shape with fewer parts comes first and stays where more parts explain no more
        if best is None or error < best[0] * (1 - 1e-9) - 1e-15:
            best = (error, law)
    assert best is not None  # a single part always fits without being negative
    return best[1]


def _least_squares(
    samples: Sequence[tuple[int, float]], shape: Sequence[int]
) -> list[float] | None:
    """The three parts, those outside `shape` zero; None when the samples do not determine them."""
    relative = np.array([(1.0 / s, 1.0 / n / s, n / s) for n, s in samples])[:, shape]
    solved, _, rank, _ = np.linalg.lstsq(relative, np.ones(len(samples)), rcond=None)
    if rank < len(shape):
        return None
    parts = np.zeros(3)
    parts[list(shape)] = solved
    return parts.tolist()
