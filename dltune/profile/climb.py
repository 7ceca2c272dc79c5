"""Hill climbing over intra-op threads (section III-C of the paper), for all ops at once.

All ops still climbing run at the same case in a step, as the paper does: one thread, then up the
ladder of thread counts, each count in every placement it has, while an op's time falls. From where
it stops an op keeps its best case, but for the count of all cores: every op is measured there, as
TensorFlow's recommended setting runs it there.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from dltune.schemas.profile import Placement
from dltune.stats import relative_spread

Case = tuple[int, Placement]
# How many counts in a row may be slower than an op's best before it stops. The paper stops at the
# first; near its best an op's curve is flat, and one unlucky sample would end the climb: with 2 %
# noise on 68 cores (X = 4), 80 % of ops then end within 2 % of their best, and 91 % with two.
PATIENCE = 2


class Climb:
    """The state of the climb; knows nothing of jobs or clocks.

    `cases` are all (threads, placement) in the order they are tried: rising thread counts, the
    placements of a count one after the other. `patience` is PATIENCE, or 1 for the paper's rule.
    """

    def __init__(self, cases: Sequence[Case], patience: int = PATIENCE) -> None:
        self._cases = tuple(cases)
        self._all_cores = max(count for count, _ in cases)
        self._patience = patience
        self._position = 0
        self._samples: dict[str, dict[Case, list[float]]] = {}
        self._stopped: dict[str, Case] = {}
        self._steps: dict[int, dict[Case, list[float]]] = {}

    @property
    def case(self) -> Case | None:
        """The case to run now; None when the climb is over."""
        if self._position >= len(self._cases):
            return None
        return self._cases[self._position]

    @property
    def cases_left(self) -> int:
        """Cases still to run if nothing stops before the top of the ladder."""
        return len(self._cases) - self._position

    @property
    def climbing(self) -> int:
        """How many ops have not found their best yet."""
        return len(self._samples) - len(self._stopped)

    def wanted(self, key: str) -> Case | None:
        """The case in which `key` runs now: the climb's, or its own best once it has stopped."""
        return self.held().get(key, self.case)

    def held(self) -> dict[str, Case]:
        """The ops that do not run in the climb's present case, and their own."""
        at_the_top = self.case is not None and self.case[0] == self._all_cores
        return {} if at_the_top else self._stopped

    def add(self, key: str, seconds: float) -> None:
        """One measurement of `key` at the case that it is `wanted` at."""
        case = self.wanted(key)
        assert case is not None, "the climb is over"
        self._samples.setdefault(key, {}).setdefault(case, []).append(seconds)

    def add_step(self, graph: int, seconds: float) -> None:
        """All ops of one execution of `graph` together, if they all run in the present case."""
        if self.case is not None and not self.held():
            self._steps.setdefault(graph, {}).setdefault(self.case, []).append(seconds)

    def has_measured(self, key: str) -> bool:
        """At any case; never an op that nobody controls."""
        return key in self._samples

    def spread(self, key: str) -> float:
        """Spread of `key`'s samples at its present case; infinite below three samples."""
        case = self.wanted(key)
        samples = self._samples.get(key, {}).get(case, []) if case else []
        return relative_spread(samples) if len(samples) >= 3 else float("inf")

    def advance(self) -> None:
        """End the present case. At the end of a thread count, ops that got slower stop."""
        assert self.case is not None, "the climb is over"
        count = self.case[0]
        self._position += 1
        if self.case is not None and self.case[0] == count:
            return
        for key, cases in self._samples.items():
            if key in self._stopped:
                continue
            # the fastest; of equal ones the first
            best = min(cases, key=lambda case: (statistics.median(cases[case]), case[0]))
            slower = sum(best[0] < n <= count for n in {n for n, _ in cases})
            if slower >= self._patience:
                self._stopped[key] = best
        if self._samples and self.climbing == 0 and self.case is not None:
            # nothing to gain between here and the count of all cores
            self._position = [count for count, _ in self._cases].index(self._all_cores)

    def samples(self) -> Iterator[tuple[str, Case, list[float]]]:
        """Everything measured: (key, case, seconds)."""
        for key, cases in self._samples.items():
            for case, seconds in cases.items():
                yield key, case, seconds

    def steps(self, graph: int) -> Iterator[tuple[Case, list[float]]]:
        """What executions of `graph` took in ops, by case."""
        yield from self._steps.get(graph, {}).items()
