"""Candidates that are ready, those that go when room is short, and costs of starts and turns."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence

from dltune.tune.candidate import Candidate
from dltune.tune.evaluator import Evaluator, Refused


class WarmPool:
    """Candidates whose jobs are kept alive between their turns.

    `lasting`: those that are wanted again at the end, and so are ended last.
    """

    def __init__(self, evaluator: Evaluator, lasting: Sequence[Candidate]) -> None:
        self.standing: list[Candidate] = []
        self._evaluator = evaluator
        self._lasting = tuple(lasting)
        self._starts: list[float] = []
        self._turns: list[float] = []
        self._rounds = 0

    def expected_seconds(self, candidates: Collection[Candidate], turns: int) -> float:
        """Seconds of so many turns, and of the starts of those candidates that are not ready, from
        the times of earlier turns and starts."""
        starts = sum(candidate not in self.standing for candidate in candidates)
        start = statistics.fmean(self._starts) if self._starts else 0.0
        turn = statistics.median(self._turns) if self._turns else 0.0
        return starts * start + turns * turn

    def expect(self, candidates: Sequence[Candidate], needed: Sequence[Candidate]) -> None:
        """Expect these to be ready next, all of them; those of `needed` stay in any case."""
        missing = [candidate for candidate in candidates if candidate not in self.standing]
        for idle in self._idle((*needed, *candidates)):
            if len(self.standing) + len(missing) > self._evaluator.room:
                self.drop(idle)
        self._evaluator.expect(missing)

    def stand(self, candidate: Candidate, needed: Sequence[Candidate] = ()) -> Refused | None:
        """Make a candidate ready; of the others, those of `needed` stay in any case."""
        if candidate in self.standing:
            return None
        for idle in self._idle(needed):
            if len(self.standing) >= self._evaluator.room:
                self.drop(idle)
        before = self._evaluator.left()
        refused = self._evaluator.start(candidate)
        self._starts.append(before - self._evaluator.left())
        if refused is None:
            self.standing.append(candidate)
        return refused

    def drop(self, candidate: Candidate) -> None:
        """End a candidate, if it is ready."""
        if candidate in self.standing:
            self.standing.remove(candidate)
            self._evaluator.drop(candidate)

    def round(self, candidates: Sequence[Candidate]) -> Mapping[Candidate, float | Refused]:
        """A turn of each, in an order that is rotated by one from round to round."""
        first = self._rounds % len(candidates)
        self._rounds += 1
        before = self._evaluator.left()
        taken = self._evaluator.round([*candidates[first:], *candidates[:first]])
        self._turns.append((before - self._evaluator.left()) / len(candidates))
        for candidate, result in taken.items():
            if isinstance(result, Refused):
                self.standing.remove(candidate)
        return taken

    def _idle(self, needed: Sequence[Candidate]) -> list[Candidate]:
        return sorted(
            (c for c in self.standing if c not in needed), key=lambda c: c in self._lasting
        )
