"""Candidates worth a trial with an incumbent, given the results of the trials so far."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence

from dltune.schemas.bench import Trial
from dltune.schemas.settings import Choice
from dltune.tune.candidate import Candidate, Option, added, beside, without

# a setting that takes so much longer alone is not tried in a pair
HOPELESS = 1.25


def wanted(
    incumbent: Candidate, options: Sequence[Option], trials: Sequence[Trial]
) -> Iterator[Candidate]:
    """Candidates that no trial has decided yet, the most promising first; some come twice."""
    decided = [trial for trial in trials if trial.verdict != "undecided"]
    known = {trial.candidate for trial in decided} | {trial.against for trial in decided}
    for candidate in itertools.chain(
        _helped(incumbent, decided),
        _singles(incumbent, options, decided, first=True),
        _joined(incumbent, options, decided),
        _singles(incumbent, options, decided, first=False),
        (without(incumbent, choice.setting) for choice in incumbent),
    ):
        if candidate and candidate != incumbent and candidate not in known:
            yield candidate


def tried(trials: Sequence[Trial]) -> set[Choice]:
    """Choices that were tried alone with an incumbent."""
    return {
        found[0]
        for trial in trials
        if trial.verdict != "undecided" and len(found := added(trial.candidate, trial.against)) == 1
    }


def idle(options: Sequence[Option], trials: Sequence[Trial]) -> set[str]:
    """Settings that have nothing to act on in the job, whatever their value."""
    none = {
        choice
        for trial in trials
        if trial.verdict == "no effect"
        for choice in added(trial.candidate, trial.against)
    }
    return {option.choice.setting for option in options if option.acts and option.choice in none}


def ratio(trial: Trial) -> float:
    """The median of its rounds."""
    return statistics.median(trial.ratios)


def _helped(incumbent: Candidate, trials: Sequence[Trial]) -> Iterator[Candidate]:
    """Candidates with choices that helped with another incumbent; not a second value of this
    incumbent's settings."""
    names = {choice.setting for choice in incumbent}
    helped = [t for t in trials if t.verdict == "helps" and t.against != incumbent]
    for trial in sorted(helped, key=ratio):
        more = [c for c in added(trial.candidate, trial.against) if c.setting not in names]
        if more:
            yield beside(incumbent, *more)


def _singles(
    incumbent: Candidate, options: Sequence[Option], trials: Sequence[Trial], *, first: bool
) -> Iterator[Candidate]:
    """Each setting's first value, or its further ones, unless it had nothing to act on."""
    none = idle(options, trials)
    again = {name for name in none if _may_act_now(name, incumbent, options, trials)}
    none -= again
    past = {choice for choice in tried(trials) if choice.setting not in again}
    seen: set[str] = set()
    for option in options:
        name = option.choice.setting
        if (name not in seen) == first and option.choice not in past and name not in none:
            yield beside(incumbent, option.choice)
        seen.add(name)


def _may_act_now(
    name: str, incumbent: Candidate, options: Sequence[Option], trials: Sequence[Trial]
) -> bool:
    """True if a setting that had nothing to act on interacts with another one that acts, and that
    was chosen since it was tried: workers have batches to prefetch."""
    joins = {other for option in options if option.choice.setting == name for other in option.joins}
    acting = {option.choice.setting for option in options if option.acts}
    companions = {
        other.setting
        for trial in trials
        if any(choice.setting == name for choice in added(trial.candidate, trial.against))
        for other in trial.candidate
    }
    chosen = {choice.setting for choice in incumbent}
    return bool(joins & acting & (chosen - companions))


def _joined(
    incumbent: Candidate, options: Sequence[Option], trials: Sequence[Trial]
) -> Iterator[Candidate]:
    """Settings that interact and were not tried together, each with its best value known."""
    now = {choice.setting for choice in incumbent}
    best = _best_values(trials)
    joins = {option.choice.setting: option.joins for option in options}
    for pair in itertools.combinations(joins, 2):
        a, b = pair
        if (b in joins[a] or a in joins[b]) and not now.issuperset(pair):
            missing = [best[name] for name in pair if name not in now and name in best]
            if len(missing) == len(set(pair) - now) and not _together(pair, trials):
                yield beside(incumbent, *missing)


def _together(pair: tuple[str, str], trials: Sequence[Trial]) -> bool:
    """True if a trial has tried at least one of the pair where the other was there."""
    for trial in trials:
        names = {choice.setting for choice in trial.candidate}
        new = {choice.setting for choice in added(trial.candidate, trial.against)}
        if names.issuperset(pair) and new.intersection(pair):
            return True
    return False


def _best_values(trials: Sequence[Trial]) -> dict[str, Choice]:
    """Best value of each setting that was measured alone with an incumbent."""
    found: dict[str, tuple[float, Choice]] = {}
    for trial in trials:
        new = added(trial.candidate, trial.against)
        if len(new) == 1 and trial.ratios and ratio(trial) < HOPELESS:
            one = (ratio(trial), new[0])
            found[new[0].setting] = min(found.get(new[0].setting, one), one)
    return {name: choice for name, (_, choice) in found.items()}
