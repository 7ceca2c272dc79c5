"""The evaluator of real jobs: a process (or a launcher with its ranks) for each candidate.

While jobs start, and in each turn, all other jobs wait at their step barriers. A job that crashes,
hangs, ends too early or never comes to a step is ended with all its processes and refused; no other
job ends.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dltune.base.errors import DltuneError, UsageError
from dltune.plan.settings.choices import as_it_is
from dltune.plan.settings.setting import Circumstances, starts_ranks
from dltune.schemas.profile import Framework
from dltune.schemas.settings import Choice
from dltune.system.memory import free_bytes, used_bytes
from dltune.tune.candidate_job import RefusedError, Tried, failed, no_effect, refusal
from dltune.tune.candidates import AS_GIVEN, Candidate, Refused
from dltune.tune.guardian import Guardian
from dltune.turns.barrier import JobEndedError, TurnError
from dltune.turns.rounds import (
    FIRST_EXECUTIONS,
    WARM_UP,
    Allotment,
    RunningJobs,
    SeldomError,
    arrivals,
    first_turn,
    undisturbed,
    watched,
)

# approximate seconds of a turn; and its steps that count, for steps up to LONG seconds and for
# longer steps: many short turns decide sooner than a few long turns. The loss of a job by waiting
# (caches, a core that slept) is small compared with a second, and the same for all candidates:
# a long step needs no warm-up step before it
TURN_SECONDS, LONG = 0.6, 1.0
SHORT_STEPS, LONG_STEPS = 2, 1
# candidates that can wait at once, if there is memory for them
MOST = 6
# of the memory, left to others
SPARE = 0.1
# a candidate can be silent for so many times the start time of the job as given (until its steps),
# and take twice that to come to its steps; at least so many seconds
PATIENCE, LEAST_PATIENCE = 4.0, 30.0
# so many turns' time for a turn, and at least so many seconds: validation can come between, or the
# end of an epoch, at which tf.data can rest for half a minute
TURN_PATIENCE, LEAST_TURN_PATIENCE = 20.0, 60.0
# a job that ended by itself after so many turns is started again
ENOUGH_TURNS = 3
# how often a turn in which no step began and ended is given again
ATTEMPTS = 3


class Measured:
    """`Evaluator` for a job. Use as a context manager: leaving the block ends all its jobs."""

    def __init__(
        self,
        here: Circumstances,
        *,
        budget: float,
        patience: float,
        verbose: bool,
        framework: Framework | None = None,
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`budget`: seconds from now on. `patience`: seconds for which the job as given can send no
        message before its first step. `framework`: its required framework (None: any). `tell`
        is called with the cause of a start's wait (empty: the job's first step)."""
        self.error: DltuneError | None = None  # why the job as given cannot be measured
        self.framework = framework
        self._here = here
        self._ends = time.monotonic() + budget
        self._patience = patience
        self._jobs = RunningJobs("dltune-tune-", verbose=verbose)
        self._tell = tell
        self._known: tuple[frozenset[str], ...] = ()
        self._first_start: float | None = None  # seconds that the job as given took to its steps
        self._given: dict[str, str] | None = None  # variables of the job as given
        self._waits = False  # the steps of the job as given, for their data
        self._ranks = starts_ranks(here.command)  # the job as given has several
        self._typical = self._counted = 0.0  # seconds of the job as given in its turns
        self._largest = 0
        self._starting: dict[Candidate, Tried] = {}
        self._stands: dict[Candidate, Tried] = {}  # ready for a turn
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Measured:
        self._guardian = self._stack.enter_context(Guardian())
        self._stack.enter_context(self._jobs)
        return self

    def __exit__(self, *error: Any) -> None:
        with undisturbed():
            self._stack.__exit__(*error)

    # --- the interface of the search

    @property
    def room(self) -> int:
        if not self._largest:
            return MOST
        free, total = free_bytes()
        more = math.floor((free - SPARE * total) / self._largest)
        return max(2, min(MOST, len(self._stands) + more))

    @property
    def typical_share(self) -> float:
        """Share of its turns that the job as given would take if all its steps were as the median
        step, which counts: the rest is in a few steps, or between steps."""
        return self._typical / self._counted if self._counted else 1.0

    def left(self) -> float:
        return self._ends - time.monotonic()

    def expect(self, candidates: Sequence[Candidate]) -> None:
        if self._ranks:  # one job of them takes all cores to start, and waits at full speed
            return
        for candidate in candidates:
            if not self._in_force(candidate):
                with contextlib.suppress(RefusedError):  # `start` will say so
                    self._launch(candidate)

    def start(self, candidate: Candidate) -> Refused | None:
        try:
            if candidate not in self._starting:
                if choice := self._in_force(candidate):
                    raise no_effect(candidate, choice, "the job already has this value")
                self._launch(candidate)
            self._wait()
            self._stands[candidate] = self._ready(candidate, self._starting.pop(candidate))
        except RefusedError as error:
            if candidate == AS_GIVEN:
                self.error = error.error
            return error.refused
        return None

    def round(self, candidates: Sequence[Candidate]) -> Mapping[Candidate, float | Refused]:
        for unwanted in self._starting.values():  # expected, but not started in the end
            self._jobs.end(unwanted)
        self._starting.clear()
        return {candidate: self._turn(candidate) for candidate in candidates}

    def drop(self, candidate: Candidate) -> None:
        self._jobs.end(self._stands.pop(candidate))

    # --- starting

    def _in_force(self, candidate: Candidate) -> Choice | None:
        """Return a choice of the candidate that the job as given has already."""
        if self._given is None:
            return None
        return next((c for c in candidate if as_it_is(c, self._here, self._given)), None)

    def _launch(self, candidate: Candidate) -> None:
        """Raises RefusedError."""
        try:
            tried = Tried(candidate, self._here, self._known, self._guardian)
            self._jobs.start(tried, self._here.command)
        except UsageError as error:
            raise failed(error) from None
        self._starting[candidate] = tried

    def _wait(self) -> None:
        """Wait until no job starts any more: a starting job would disturb a first turn."""
        silence = self._patience
        longest = math.inf
        if self._first_start is not None:
            several = len(self._starting)
            silence = min(silence, max(LEAST_PATIENCE, PATIENCE * self._first_start) * several)
            longest = 2 * silence
        jobs = [tried for tried in self._starting.values() if not tried.over]
        others = self._stands.values()
        for tried, error in arrivals(
            jobs, self._tell_waiting, silence=silence, longest=longest, others=others
        ):
            tried.over = self._refused(tried, error)

    def _tell_waiting(self, _: int, building: bool) -> None:
        self._tell("building the plugin for the job's framework" if building else "")

    def _refused(self, tried: Tried, error: TurnError) -> RefusedError:
        """End a job that failed, and return the reason to refuse it."""
        refused = refusal(tried, error)
        self._jobs.end(tried)
        return refused

    def _ready(self, candidate: Candidate, tried: Tried) -> Tried:
        """Return the job after its first turn. Raises RefusedError; the job is ended then."""
        if tried.over:
            raise tried.over
        if idle := tried.idle_choice():
            self._jobs.end(tried)
            raise no_effect(candidate, *idle)
        if self._first_start is None:
            self._waits, self._ranks = tried.waits, tried.ranks
        tried.still = tried.rests or (self._waits and not tried.ranks)
        try:
            tried.allotment = self._allotment(tried)
        except TurnError as error:
            raise self._refused(tried, error) from None
        if self._first_start is None:
            assert tried.steps is not None
            self._first_start = time.monotonic() - tried.began
            self._known = tried.steps.nodes if tried.steps.trains else ()
            self._given = tried.environment
            self._require(tried.framework)
        self._largest = max(self._largest, used_bytes(tried.pid))
        return tried

    def _allotment(self, tried: Tried) -> Allotment:
        """Raises TurnError."""
        pace = tried.pace
        if pace and pace >= LONG:  # its first steps, by which it was found, were warm-up enough
            return self._long(tried, pace, 1.0)
        idle = watched(tried, self._stands.values(), limit=self._patience)
        first = max(WARM_UP + 1, FIRST_EXECUTIONS // tried.per_execution)
        found = first_turn(tried, TURN_SECONDS, SHORT_STEPS, idle, first)
        step, each = found.seconds / found.steps, found.executions / found.steps
        return found.shortened(found.share) if step < LONG else self._long(tried, step, each)

    def _long(self, tried: Tried, step: float, each: float) -> Allotment:
        """Return the allotment for steps of `step` seconds and `each` executions."""
        warm_up = WARM_UP if tried.still else 0  # a job whose data came to rest has them ready
        steps = LONG_STEPS + warm_up + (tried.graphs > 1)
        executions = math.ceil(steps * each)
        return Allotment(executions, steps, steps * step, executions, warm_up)

    # --- turns

    def _turn(self, candidate: Candidate) -> float | Refused:
        """Run a turn; a job that has come to its end after some turns is started again."""
        tried = self._stands[candidate]
        try:
            return self._step_seconds(tried, self._patience if candidate == AS_GIVEN else 0.0)
        except JobEndedError as error:
            self.drop(candidate)
            if tried.exit_code or tried.turns < ENOUGH_TURNS:
                over = refusal(tried, error)
                if candidate == AS_GIVEN:
                    self.error = over.error
                return over.refused
        except TurnError as error:
            over = refusal(tried, error)
            self.drop(candidate)
            return over.refused
        return self.start(candidate) or self._turn(candidate)

    def _step_seconds(self, tried: Tried, least: float) -> float:
        """Return the seconds of a step in a turn. Raises TurnError; the job hangs if its turn takes
        too long, and at least `least` seconds."""
        limit = max(least, LEAST_TURN_PATIENCE, TURN_PATIENCE * tried.allotment.seconds)
        for _ in range(ATTEMPTS):
            idle = watched(tried, self._stands.values(), limit=limit)
            taken = tried.take(tried.allotment.executions, idle)
            tried.turns += 1
            if steps := taken.steps[tried.allotment.warm_up :]:
                typical = statistics.median(steps)
                if not tried.applied.choices:
                    self._typical += typical * len(steps)
                    self._counted += sum(steps)
                return typical / tried.per_execution
        raise SeldomError(tried)

    def _require(self, found: Framework) -> None:
        """Raises UsageError."""
        if self.framework and self.framework.title != found.title:
            raise UsageError(
                f"the job uses {found.title}, but the saved search used {self.framework.title}",
                remedy="omit --resume to start again",
            )
        self.framework = found
