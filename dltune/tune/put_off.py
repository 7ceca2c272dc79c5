"""Trials that are put off: what is no large gain after a few rounds waits until all is looked at.

On a noisy machine most rounds go to trials that end with no difference seen, while a gain that is
large shows in a few. So a trial that is not decided by then, and gains little as it stands, makes
room for the next; it goes on from its rounds when nothing new is left. Its interval holds all the
same, as it does however long one looks. What comes next is ordered by what is known so far.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from dltune.documents.plan_settings import Choice
from dltune.documents.tune import Trial
from dltune.tune.candidate import Candidate, added
from dltune.tune.verdict import judge

# rounds after which a trial is put off, and the step time over the incumbent's above which it is
ROUNDS, LARGE = 5, 0.95


class PutOff:
    def __init__(self) -> None:
        self._rounds: dict[tuple[Candidate, Candidate], tuple[float, ...]] = {}
        self._ratios: dict[Choice, float] = {}  # of a choice alone, beside whatever was there

    def fits(self, candidate: Candidate, against: Candidate, ratios: Sequence[float]) -> bool:
        """Whether an undecided trial is to wait. A removal is not, nor what has waited already."""
        waited = (candidate, against) in self._rounds
        return (
            not waited
            and len(ratios) >= ROUNDS
            and bool(added(candidate, against))
            and statistics.median(ratios) > LARGE
        )

    def put(self, candidate: Candidate, against: Candidate, ratios: Sequence[float]) -> None:
        self._rounds[candidate, against] = tuple(ratios)

    def again(self, trial: Trial) -> bool:
        """Whether a trial of an earlier search was put off there at this point, as it is then."""
        pair = (trial.candidate, trial.against)
        first = trial.ratios[:ROUNDS]
        over = trial.verdict != "undecided"
        off = self.fits(*pair, first) and not judge(first)
        off = off and not (over and len(trial.ratios) == ROUNDS)
        rounds = first if off and over else trial.ratios
        self.seen(*pair, rounds)
        if off:
            self.put(*pair, rounds)
        return off

    def rounds(self, candidate: Candidate, against: Candidate) -> tuple[float, ...]:
        """Those that the trial has had."""
        return self._rounds.get((candidate, against), ())

    def seen(self, candidate: Candidate, against: Candidate, ratios: Sequence[float]) -> None:
        """Remember what a trial has shown so far of a choice alone."""
        more = added(candidate, against)
        if len(more) == 1 and ratios:
            self._ratios[more[0]] = statistics.median(ratios)

    def ordered(self, candidates: Iterable[Candidate], against: Candidate) -> list[Candidate]:
        """What promises most first; what has waited beside this incumbent last. Of equal promise in
        the order given, and what is not known before what promises nothing."""

        def promise(candidate: Candidate) -> tuple[bool, float]:
            found = [self._ratios.get(choice, 1.0) for choice in added(candidate, against)]
            return (candidate, against) in self._rounds, math.prod(found)

        return sorted(dict.fromkeys(candidates), key=promise)

    def left(
        self, decided: Iterable[tuple[Candidate, Candidate]]
    ) -> list[tuple[Candidate, Candidate]]:
        """Trials that wait still, as (candidate, against), of choices that none has decided."""
        known = {choice for pair in decided for choice in added(*pair)}
        return [pair for pair in self._rounds if not known.issuperset(added(*pair))]
