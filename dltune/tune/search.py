"""The search: which candidates race, the verdict of each trial, and the final choice.

`Search` climbs the hill of candidates: it compares each candidate with the best candidate so far.
`judge` decides each trial from the ratios of its rounds.

Nothing here starts a process or reads a clock: an `Evaluator` does. A search is determined by how
its trials end, so one that was interrupted goes on from the trials that it had finished.
"""

from __future__ import annotations

import itertools
import logging
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dltune.plan.settings.show import in_words
from dltune.schemas.bench import Trial
from dltune.schemas.settings import Measured, Verdict
from dltune.stats import Interval, anytime_ratio, sign_test
from dltune.tune.candidates import (
    AS_GIVEN,
    Candidate,
    Evaluator,
    Option,
    Refused,
    WarmPool,
    added,
    idle,
    ratio,
    tried,
    wanted,
)

# Verdicts of trials

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
    """Return the verdict of a trial after these rounds, at any time; None: go on.

    Ratios are numbers above 0, one at least. `rounds`: after so many the trial is given up, where
    no gain shows and where one does.

    The interval of the ratios holds the true ratio at all looks together with probability
    CONFIDENCE (`anytime_ratio`), so a setting that does nothing is said to help or to hurt in at
    most 1 - CONFIDENCE of its trials, however long they are. The best of many trials is more often
    lucky than one trial is: therefore the choice is judged again, in rounds that chose nothing.

    1. The interval is below 1: it helps. It is above 1: it hurts.
    2. The interval is within 1 +- MARGIN: no difference seen, and there is none that matters.
    3. It gains less than MARGIN with the odds of FUTILE, and does not seem to hurt either: no
       difference seen. This only ends a trial early; it never makes it help or hurt.
    4. After LOOKS rounds, or FIRST where the median gains 2 MARGIN, the trial is given up; one that
       is taken up again, after MOST. Where the median is beyond 2 MARGIN and nearly all rounds on
       its side of 1 (a sign test, LEANING), it is not proven; else no difference seen.
    """
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


# The search itself

log = logging.getLogger(__name__)

# candidates that race at once, in addition to the incumbent
BATCH = 3
# rounds that a trial is expected to take, for which there must be time; final ones; and those that
# are left of these by a trial that is about to prove a gain, or where there is none to judge again
EXPECTED, FINAL, LEAST_FINAL = DECIDING, 12, LEAST
# a removal that costs nothing: its step time over the incumbent's
FREE = 1.005


class NothingToMeasureError(Exception):
    """The job as given cannot be measured, or not any more."""


class BudgetTooSmallError(Exception):
    """There is no time for one trial. `needed`: how many more seconds of budget would do."""

    def __init__(self, needed: float) -> None:
        super().__init__(f"{needed:.0f} s more are needed")
        self.needed = needed


@dataclass(frozen=True)
class Progress:
    """Present state: `phase` as a person reads it; the candidates that race against the
    incumbent, with their ratios so far; `left`: seconds of the budget."""

    phase: str
    incumbent: Candidate
    racing: Mapping[Candidate, Sequence[float]]
    left: float


@dataclass(frozen=True)
class Final:
    """Fresh rounds: step times of the chosen set over the job as given, and over TensorFlow's
    recommendation. `held`: whether the first agree that it helps; `why` there are none."""

    whole: tuple[float, ...]
    recommended: tuple[float, ...]
    held: bool
    why: str = ""


@dataclass
class Search:
    """Search by hill climbing.

    `run` measures until all is tried or the budget is spent; the results stay readable when it is
    interrupted.

    The best candidate so far (the *incumbent*, at first the job as given) and a few others take
    turns in rounds; each trial ends when `judge` has decided it. The best of those that help
    becomes the incumbent: it was measured as a whole, so no result assumes that gains add up. The
    next candidates (`wanted`), in order:

    1. choices that helped with an earlier incumbent, with the present incumbent;
    2. each setting's first value, in the order given;
    3. settings that interact, together: where neither helped alone, and where one was tried before
       the other was adopted;
    4. the settings' further values;
    5. the incumbent without each thing that it has: choices that no longer help go;
    6. while there is time, further rounds for candidates that were given up but can still help.

    At the end the incumbent, the job as given and TensorFlow's recommendation take turns in fresh
    rounds, for which time is kept back: these chose nothing, so luck that chose is not in them.
    Unless they agree, the result is the job as given.

    `options` in the order in which they are to be tried; `recommended`: the candidate that is
    TensorFlow's recommendation (None: not compared). `past`: trials of a search that this one
    takes up. `tell` is called before slow work, `keep` after each trial.
    """

    evaluator: Evaluator
    options: Sequence[Option]
    recommended: Candidate | None = None
    past: Sequence[Trial] = ()
    tell: Callable[[Progress], object] = lambda _: None
    keep: Callable[[Trial], object] = lambda _: None

    trials: list[Trial] = field(default_factory=list, init=False)
    incumbents: list[Candidate] = field(default_factory=lambda: [AS_GIVEN], init=False)
    final: Final | None = field(default=None, init=False)
    exhausted: bool = field(default=False, init=False)  # the budget, before all was tried
    foreign: list[Option] = field(default_factory=list, init=False)  # another framework's

    def __post_init__(self) -> None:
        self._past: dict[tuple[Candidate, Candidate], list[Trial]] = {}
        for trial in self.past:
            if trial.verdict != "undecided":
                self._past.setdefault((trial.candidate, trial.against), []).append(trial)
        self._rivals = [AS_GIVEN]
        if self.recommended:
            self._rivals.append(self.recommended)
        self._pool = WarmPool(self.evaluator, self._rivals)
        self._lost: set[Candidate] = set()  # incumbents that have ended once
        self._gone: set[Candidate] = set()  # and twice
        self._again: dict[tuple[Candidate, Candidate], Trial] = {}  # trials that were taken up

    @property
    def incumbent(self) -> Candidate:
        """The best candidate so far, measured as a whole."""
        return self.incumbents[-1]

    @property
    def chosen(self) -> Candidate:
        """The result: the incumbent, unless the final rounds did not agree. If the search
        was interrupted: the candidate that has beaten the incumbent meanwhile."""
        if self.final:
            return self.incumbent if self.final.held else AS_GIVEN
        better = [
            trial
            for trial in self.trials
            if trial.verdict == "helps"
            and trial.against == self.incumbent
            and trial.candidate not in self._gone
        ]
        return min(better, key=ratio).candidate if better else self.incumbent

    @property
    def known(self) -> list[Trial]:
        """Trials so far, and those of `past` that can still be taken up."""
        return [*self.trials, *itertools.chain.from_iterable(self._past.values())]

    def untried(self) -> list[Option]:
        """Options that no trial has tried alone with an incumbent."""
        past = tried(self.trials)
        return [option for option in self.options if option.choice not in past]

    def run(self) -> None:
        """Raises NothingToMeasureError when the job as given cannot be measured, and
        BudgetTooSmallError when there is no time for one trial."""
        self._begin()
        while batch := self._batch() or self._given_up():
            self._race(batch)
        self._tell("final rounds", {})
        self._confirm()

    def _begin(self) -> None:
        self._tell("starting the job as found", {})
        # the recommendation is measured in any case: both jobs start at once
        first = [one for one in self._rivals[1:] if (one, AS_GIVEN) not in self._past]
        self._pool.expect((AS_GIVEN, *first), ())
        if refused := self._pool.stand(AS_GIVEN):
            raise NothingToMeasureError(refused.why)
        if here := self.evaluator.framework:
            self.foreign = [o for o in self.options if o.framework not in (None, here.name)]
            self.options = [o for o in self.options if o not in self.foreign]
            theirs = {option.choice for option in self.foreign}
            if self.recommended and not theirs.isdisjoint(self.recommended):
                self.recommended, self._rivals[1:], first = None, [], []
        for one in first:
            if refused := self._pool.stand(one):
                self._finish(Trial(one, AS_GIVEN, refused.verdict, (), refused.why))
        taken = self._pool.round([AS_GIVEN])[AS_GIVEN]
        if isinstance(taken, Refused):
            raise NothingToMeasureError(taken.why)
        needed = self._reserve(LEAST_FINAL) + self._expected(self._wanted()[:1])
        needed -= self.evaluator.left()
        if needed > 0 and not self._past:
            raise BudgetTooSmallError(needed)

    # --- what races next

    def _batch(self) -> list[Candidate]:
        """The next candidates, as many as there is room and time for; none: it is over."""
        found = self._affordable(list(dict.fromkeys(self._wanted())))
        self.exhausted = not found and bool(self._wanted())
        return found

    def _given_up(self) -> list[Candidate]:
        """Candidates that were given up with the incumbent though their median gains something, the
        best first: each is taken up once, where its rounds ended."""
        if self.exhausted:
            return []
        found = {
            trial.candidate: trial
            for trial in sorted(filter(self._may_help, self.trials), key=ratio)
        }
        batch = self._affordable(list(found))
        self._again |= {(one, self.incumbent): found[one] for one in batch}
        return batch

    def _may_help(self, trial: Trial) -> bool:
        return (
            trial.against == self.incumbent
            and (trial.candidate, trial.against) not in self._again
            and trial.verdict in ("no difference seen", "not proven")
            and LOOKS <= len(trial.ratios) < MOST
            and bool(added(trial.candidate, trial.against))
            and ratio(trial) < 1
        )

    def _affordable(self, candidates: list[Candidate]) -> list[Candidate]:
        """Return the first candidates for which there is room, and time in addition to the final
        rounds; while no gain was found, in addition to a few final rounds."""
        batch = candidates[: min(BATCH, self.evaluator.room - 1)]
        new = [c for c in batch if not self._past.get((c, self.incumbent))]
        known = [c for c in batch if c not in new]
        rounds = LEAST_FINAL if self.incumbent == AS_GIVEN else FINAL
        time = self.evaluator.left() - self._reserve(rounds)
        fit = next((n for n in range(len(new), 0, -1) if self._expected(new[:n]) <= time), 0)
        return [c for c in batch if c in known or c in new[:fit]]

    def _wanted(self) -> list[Candidate]:
        found = list(wanted(self.incumbent, self.options, self.trials))
        begun = any(trial.candidate == self.recommended for trial in self.trials)
        if self.recommended and self.incumbent == AS_GIVEN and not begun:
            found.insert(0, self.recommended)
        return found

    def _expected(self, candidates: Sequence[Candidate]) -> float:
        """Seconds that the trials of these candidates are expected to take."""
        return self._pool.expected_seconds(candidates, EXPECTED * (len(candidates) + 1))

    def _reserve(self, rounds: int) -> float:
        """Seconds that are kept back for so many final rounds."""
        finalists = {*self._rivals, self.incumbent}
        return self._pool.expected_seconds(finalists, rounds * (len(self._rivals) + 1))

    # --- trials

    def _race(self, batch: Sequence[Candidate]) -> None:
        """The trials of a batch; the best of those that help becomes the incumbent."""
        against = self.incumbent
        new = [c for c in batch if not self._past.get((c, against))]
        trials = [self._past[c, against].pop(0) for c in batch if c not in new]
        for trial in trials:
            self._finish(trial)
        if new:
            trials += self._measure(new, against)
        if against == self.incumbent:  # it was not given up meanwhile
            self._adopt(trials)

    def _measure(self, batch: Sequence[Candidate], against: Candidate) -> list[Trial]:
        done: list[Trial] = []
        racing: dict[Candidate, list[float]] = {}

        def end(candidate: Candidate, said: Verdict, why: str) -> None:
            trial = Trial(candidate, against, said, tuple(racing.pop(candidate, ())), why)
            self._finish(trial)
            done.append(trial)
            if said != "helps" and candidate not in self._rivals:
                self._pool.drop(candidate)

        self._pool.expect((against, *batch), ())
        for candidate in (against, *batch):
            if idle(self.options, done).intersection(choice.setting for choice in candidate):
                continue  # another value of it has just shown that
            if candidate not in self._pool.standing:
                self._tell(f"starting {in_words(candidate)}", racing)
            refused = self._pool.stand(candidate, (against, *batch))
            if refused and candidate == against:
                self._lose(against, refused)
                return done
            if refused:
                end(candidate, refused.verdict, refused.why)
            elif candidate != against:
                before = self._again.get((candidate, against))
                racing[candidate] = list(before.ratios) if before else []
        while racing:
            self._tell(f"comparing with {in_words(against)}", racing)
            taken = self._pool.round([against, *racing])
            reference = taken[against]
            if isinstance(reference, Refused):
                for candidate in list(racing):
                    end(candidate, "undecided", f"{in_words(against)} ended during the comparison")
                self._lose(against, reference)
                return done
            for candidate in list(racing):
                seconds = taken[candidate]
                if isinstance(seconds, Refused):
                    end(candidate, seconds.verdict, seconds.why)
                    continue
                racing[candidate].append(seconds / reference)
                rounds = self._rounds(candidate, against)
                if judged := judge(racing[candidate], rounds=rounds):
                    end(candidate, judged.verdict, judged.why)
            found = against != AS_GIVEN or any(trial.verdict == "helps" for trial in done)
            for candidate in list(racing):
                few = not found or promising(racing[candidate])
                if self.evaluator.left() < self._reserve(LEAST_FINAL if few else FINAL):
                    end(candidate, "undecided", "the budget was spent")
        return done

    def _rounds(self, candidate: Candidate, against: Candidate) -> tuple[int, int]:
        """After how many a trial is given up, where no gain shows and where one does."""
        if (candidate, against) in self._again:
            return MOST, MOST
        return LOOKS, FIRST

    def _finish(self, trial: Trial) -> None:
        log.debug(
            "%s against %s: %s in %d rounds%s",
            in_words(trial.candidate),
            in_words(trial.against),
            trial.verdict,
            len(trial.ratios),
            f" ({trial.why})" if trial.why else "",
        )
        self.trials.append(trial)
        self.keep(trial)

    def _adopt(self, trials: Sequence[Trial]) -> None:
        """The best of those that help; else a removal that costs nothing."""
        helps = [trial for trial in trials if trial.verdict == "helps"]
        free = [
            trial
            for trial in trials
            if trial.verdict == "no difference seen"
            and not added(trial.candidate, trial.against)
            and ratio(trial) < FREE
        ]
        if helps or free:
            self.incumbents.append(min(helps or free, key=ratio).candidate)

    def _lose(self, incumbent: Candidate, refused: Refused) -> None:
        """An incumbent that ended is started again, once; after that, the incumbent before it
        replaces it."""
        if incumbent not in self._lost:
            self._lost.add(incumbent)
            return
        if incumbent == AS_GIVEN:
            raise NothingToMeasureError(refused.why)
        self._gone.add(incumbent)
        self.incumbents = [one for one in self.incumbents if one != incumbent]

    # --- the final rounds

    def _confirm(self) -> None:
        """Fresh rounds of the incumbent, the job as given and the recommendation."""
        chosen = self.incumbent
        if chosen == AS_GIVEN:
            return
        rivals = [one for one in self._rivals if one != chosen][: self.evaluator.room - 1]
        finalists = [chosen, *rivals]
        self._pool.expect(finalists, ())
        why = ""
        for one in list(finalists):
            if refused := self._pool.stand(one, finalists):
                finalists.remove(one)
                if one in (chosen, AS_GIVEN):
                    why = f"the job could not be started again for the final rounds: {refused.why}"
        ratios: dict[Candidate, list[float]] = {one: [] for one in rivals}
        while {chosen, AS_GIVEN}.issubset(finalists):
            self._tell("final rounds", {chosen: ratios[AS_GIVEN]})
            taken = self._pool.round(finalists)
            mine = taken[chosen]
            for one in list(finalists):
                seconds = taken[one]
                if isinstance(seconds, Refused):
                    if one in self._lost or self._pool.stand(one, finalists):
                        finalists.remove(one)
                    self._lost.add(one)
                elif one != chosen and not isinstance(mine, Refused):
                    ratios[one].append(mine / seconds)
            whole = ratios[AS_GIVEN]
            if self.evaluator.left() <= 0 or len(whole) >= MOST:
                break
            if len(whole) >= FINAL and judge(whole, FINAL_CONFIDENCE, (FINAL, MOST)):
                break
        self.final = Final(
            whole=tuple(ratios[AS_GIVEN]),
            recommended=tuple(ratios.get(self.recommended, ())) if self.recommended else (),
            held=agree(ratios[AS_GIVEN]),
            why=why,
        )

    def _tell(self, phase: str, racing: Mapping[Candidate, Sequence[float]]) -> None:
        shown = {candidate: tuple(ratios) for candidate, ratios in racing.items()}
        self.tell(Progress(phase, self.incumbent, shown, self.evaluator.left()))
