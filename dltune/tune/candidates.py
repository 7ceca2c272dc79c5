"""Candidates of a search: their choices, the settings on offer, the pool of jobs, and what to try.

A candidate is the set of choices that a job is started under, in the order of their settings.
`offer` lists the settings to try on a job, and `wanted` the candidates that are worth a trial. The
search measures candidates through `Evaluator`, and keeps their jobs in a `WarmPool`.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from dltune.base.errors import UsageError
from dltune.frameworks.tensorflow import runtime
from dltune.plan.settings.choices import set_by_user
from dltune.plan.settings.setting import Circumstances, Setting
from dltune.plan.settings.space import SPACE, by_name, joins
from dltune.schemas.bench import Trial
from dltune.schemas.profile import Framework
from dltune.schemas.settings import Choice, Kind, Untried
from dltune.turns.rounds import rotated

Candidate = tuple[Choice, ...]
AS_GIVEN: Candidate = ()
KINDS: tuple[Kind, ...] = ("exact", "rounding", "lossy")


@dataclass(frozen=True)
class Option:
    """A choice that can be tried. `joins`: names of settings with which it interacts. `acts`: it
    acts on something in the job; where that is not there, its other values have no effect either.
    `framework`: whose jobs it is for (None: any).
    """

    choice: Choice
    kind: Kind
    joins: frozenset[str] = frozenset()
    acts: bool = False
    framework: str | None = None


def beside(candidate: Candidate, *choices: Choice) -> Candidate:
    """The candidate with these choices; a setting that it had keeps only its new value."""
    names = {choice.setting for choice in choices}
    return tuple(sorted([*(c for c in candidate if c.setting not in names), *choices]))


def without(candidate: Candidate, setting: str) -> Candidate:
    """The candidate with that setting left as the job has it."""
    return tuple(choice for choice in candidate if choice.setting != setting)


def furthest(kinds: Iterable[Kind]) -> Kind:
    """The kind that goes furthest from the job's own results; exact when there is none."""
    return max(kinds, key=KINDS.index, default="exact")


def added(candidate: Candidate, against: Candidate) -> Candidate:
    """The choices that `against` does not have."""
    return tuple(choice for choice in candidate if choice not in against)


@dataclass(frozen=True)
class Refused:
    """Why a candidate cannot be measured, now or any more. It is dropped already.

    "failed": the job crashed, hung, ended too early or never came to a step under it; "no effect":
    it came to a step, but there is nothing in the job that the choices act on.
    """

    verdict: Literal["failed", "no effect"]
    why: str


class Evaluator(Protocol):
    """Interface of the search to the measurement of candidates.

    `evaluation.Measured` implements it. Candidates that are ready take turns. Only one thing
    happens at a time.
    """

    @property
    def room(self) -> int:
        """Number of candidates that can wait at once: at least 2, as needed for a comparison."""

    @property
    def framework(self) -> Framework | None:
        """The job's framework, once a candidate was ready."""

    def expect(self, candidates: Sequence[Candidate]) -> None:
        """Prepare for the next starts: work that all of them can share at once can be done now."""

    def start(self, candidate: Candidate) -> Refused | None:
        """Start the job under a candidate and wait until it is ready, warmed up."""

    def round(self, candidates: Sequence[Candidate]) -> Mapping[Candidate, float | Refused]:
        """A turn of each, in that order: the seconds of a step, or why there are none."""

    def drop(self, candidate: Candidate) -> None:
        """End a candidate that waits."""

    def left(self) -> float:
        """Seconds of the budget that are left; below 0 when it is overdrawn."""


class WarmPool:
    """Candidates that are ready: their jobs are kept alive between their turns.

    The pool chooses the candidates that go when room is short, and predicts the costs of starts
    and turns.

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
        before = self._evaluator.left()
        taken = self._evaluator.round(rotated(candidates, self._rounds))
        self._rounds += 1
        self._turns.append((before - self._evaluator.left()) / len(candidates))
        for candidate, result in taken.items():
            if isinstance(result, Refused):
                self.standing.remove(candidate)
        return taken

    def _idle(self, needed: Sequence[Candidate]) -> list[Candidate]:
        return sorted(
            (c for c in self.standing if c not in needed), key=lambda c: c in self._lasting
        )


# Settings to try on a job

_THREADS = "threads"


@dataclass(frozen=True)
class Offer:
    """Settings to try on this job, in order, and the settings not to try, with reasons.

    `options` in the order in which they are tried; `recommended`: TensorFlow's recommendation of
    threads as a candidate (None: it is not among them).
    """

    options: tuple[Option, ...]
    untried: tuple[Untried, ...]
    recommended: Candidate | None


def offer(
    here: Circumstances,
    *,
    allow: Kind,
    only: Collection[str] = (),
    without: Collection[str] = (),
    first: Sequence[str] = (),
    same_graph: bool = False,
) -> Offer:
    """Return the settings to try on this job.

    `allow`: the furthest kind of setting to try; `only` (empty: all) and `without` name
    settings, `first` those that are tried before the others, in this order. `same_graph`: nothing
    is tried that changes a step's graph.

    Raises UsageError when a name is none of a setting, and when nothing is left to try.
    """
    for name in (*only, *without):
        by_name(name)
    options: list[Option] = []
    untried: list[Untried] = []
    for setting in sorted(SPACE, key=lambda s: first.index(s.name) if s.name in first else 1 << 30):
        if why := _unfit(setting, here, allow, only, without, same_graph):
            untried.append(Untried(setting.name, None, why))
            continue
        untried += [
            Untried(setting.name, value, why) for value, why in setting.untried(here).items()
        ]
        default = setting.default(here)
        for value in setting.values(here):
            # the script can set a variable: the job's value is known once it runs
            if value == default and not setting.means(value, here).environment:
                untried.append(Untried(setting.name, value, "it is the default"))
            else:
                choice, acts = Choice(setting.name, value), bool(setting.means(value, here).hooks)
                together = frozenset(joins(setting))
                framework = setting.framework or setting.framework_of(value)
                options.append(Option(choice, setting.kind, together, acts, framework))
    if not options:
        reasons = "".join(f"\n  {u.setting}: {u.why}" for u in untried)
        raise UsageError(
            f"no setting can be tried on this job{reasons}",
            remedy="choose other settings with --only, or allow more with --allow",
        )
    return Offer(tuple(options), tuple(untried), _recommended(here, options))


def _recommended(here: Circumstances, options: Sequence[Option]) -> Candidate | None:
    choice = Choice(_THREADS, runtime.recommended_threads(here.machine).text)
    return (choice,) if any(option.choice == choice for option in options) else None


def _unfit(
    setting: Setting,
    here: Circumstances,
    allow: Kind,
    only: Collection[str],
    without: Collection[str],
    same_graph: bool,
) -> str | None:
    """Why nothing of a setting is tried; None: it is."""
    if (only and setting.name not in only) or setting.name in without:
        return "excluded by --only or --without"
    if why := setting.unfit(here):
        return why
    if same_graph and setting.changes_graph:
        return "it changes the step's graph, and the plan sets threads for ops of that graph"
    if users := set_by_user(setting, here):
        return f"already set ({users})"
    if KINDS.index(setting.kind) > KINDS.index(allow):
        return f"it is {setting.kind}; --allow {setting.kind} would try it"
    return None


# Candidates to try next

# a setting that takes so much longer alone is not tried in a pair
HOPELESS = 1.25


def wanted(
    incumbent: Candidate, options: Sequence[Option], trials: Sequence[Trial]
) -> Iterator[Candidate]:
    """Yield candidates worth a trial with an incumbent, given the results of the trials so far.

    No trial has decided them yet. The most promising come first; some come twice.
    """
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
