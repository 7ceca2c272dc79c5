"""The evaluator of real jobs: a process (or a launcher with its ranks) for each candidate.

While jobs start, and in each turn, all other jobs wait at their step barriers. A job that crashes,
hangs, ends too early or never comes to a step is ended with all its processes and refused; no other
job ends.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dltune.base.errors import DltuneError, UsageError
from dltune.plan.settings.choices import as_it_is
from dltune.plan.settings.setting import Circumstances, starts_ranks
from dltune.schemas.profile import Framework
from dltune.schemas.settings import Choice
from dltune.system.memory import free_bytes, used_bytes
from dltune.tune.candidate_job import (
    TOO_SELDOM,
    RefusedError,
    Starting,
    Tried,
    ended,
    failed,
    launch,
    no_effect,
)
from dltune.tune.candidates import AS_GIVEN, Candidate, Refused
from dltune.tune.guardian import Guardian
from dltune.turns import FIRST_EXECUTIONS, WARM_UP, Allotment, JobEndedError, first_turn

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


@dataclass
class _Stand:
    """A candidate that waits, ready for a turn. `closing` ends its job."""

    tried: Tried
    allotment: Allotment
    log: Path
    closing: contextlib.ExitStack
    turns: int = 0


class Measured:
    """`Evaluator` for a job. Use as a context manager within `bench.contest.all_ended`'s."""

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
        self._verbose = verbose
        self._tell = tell
        self._known: tuple[frozenset[str], ...] = ()
        self._first_start: float | None = None  # seconds that the job as given took to its steps
        self._given: dict[str, str] | None = None  # variables of the job as given
        self._waits = False  # the steps of the job as given, for their data
        self._ranks = starts_ranks(here.command)  # the job as given has several
        self._typical = self._counted = 0.0  # seconds of the job as given in its turns
        self._largest = 0
        self._numbers = itertools.count()
        self._starting: dict[Candidate, Starting] = {}
        self._stands: dict[Candidate, _Stand] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Measured:
        made = tempfile.TemporaryDirectory(prefix="dltune-tune-")
        self._folder = Path(self._stack.enter_context(made))
        self._guardian = self._stack.enter_context(Guardian())
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            for stand in self._stands.values():
                self._stack.push(stand.closing)
            for starting in self._starting.values():
                self._stack.push(starting.closing)
            self._stands.clear()
            self._starting.clear()

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
            self._stands[candidate] = self._standing(self._starting.pop(candidate))
        except RefusedError as error:
            if candidate == AS_GIVEN:
                self.error = error.error
            return error.refused
        return None

    def round(self, candidates: Sequence[Candidate]) -> Mapping[Candidate, float | Refused]:
        for unwanted in self._starting.values():  # expected, but not started in the end
            unwanted.closing.close()
        self._starting.clear()
        return {candidate: self._turn(candidate) for candidate in candidates}

    def drop(self, candidate: Candidate) -> None:
        self._stands.pop(candidate).closing.close()

    # --- starting

    def _in_force(self, candidate: Candidate) -> Choice | None:
        """Return a choice of the candidate that the job as given has already."""
        if self._given is None:
            return None
        return next((c for c in candidate if as_it_is(c, self._here, self._given)), None)

    def _launch(self, candidate: Candidate) -> None:
        """Raises RefusedError."""
        log = self._folder / f"{next(self._numbers)}.log"
        try:
            self._starting[candidate] = launch(
                candidate, self._here, self._known, log, self._guardian, verbose=self._verbose
            )
        except UsageError as error:
            raise failed(error) from None

    def _wait(self) -> None:
        """Wait until no job starts any more: a starting job would disturb a first turn."""
        silence = self._patience
        longest = math.inf
        if self._first_start is not None:
            several = len(self._starting)
            silence = min(silence, max(LEAST_PATIENCE, PATIENCE * self._first_start) * several)
            longest = 2 * silence
        while waited := [one for one in self._starting.values() if not one.ready]:
            building = any(one.building for one in waited)
            self._tell("building the plugin for the job's framework" if building else "")
            for one in waited:
                one.look(silence, longest)
            self._hear()

    def _standing(self, made: Starting) -> _Stand:
        """Raises RefusedError; the job is ended then."""
        if made.over:
            raise made.over
        tried = made.tried
        with made.closing as closing:
            if idle := tried.idle_choice():
                raise no_effect(made.candidate, *idle)
            if self._first_start is None:
                self._waits, self._ranks = tried.waits, tried.ranks
            tried.still = tried.rests or (self._waits and not tried.ranks)
            try:
                allotment = self._allotment(tried, made.log)
            except JobEndedError:
                raise ended(tried, made.log) from None
            if self._first_start is None:
                assert tried.steps is not None
                self._first_start = time.monotonic() - made.began
                self._known = tried.steps.nodes if tried.steps.trains else ()
                self._given = tried.environment
                self._require(tried.framework)
            self._largest = max(self._largest, used_bytes(made.pid))
            return _Stand(tried, allotment, made.log, closing.pop_all())

    def _allotment(self, tried: Tried, log: Path) -> Allotment:
        """Raises RefusedError and JobEndedError."""
        pace = tried.pace
        if pace and pace >= LONG:  # its first steps, by which it was found, were warm-up enough
            return self._long(tried, pace, 1.0)
        idle = self._patient(log, self._patience)
        first = max(WARM_UP + 1, FIRST_EXECUTIONS // tried.per_execution)
        found = first_turn(tried, TURN_SECONDS, SHORT_STEPS, idle, first)
        if found is None:
            raise failed(UsageError(TOO_SELDOM, remedy=None), log)
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
        stand = self._stands[candidate]
        try:
            return self._step_seconds(stand, self._patience if candidate == AS_GIVEN else 0.0)
        except RefusedError as error:
            self.drop(candidate)
            return error.refused
        except JobEndedError:
            self.drop(candidate)
            if stand.tried.exit_code or stand.turns < ENOUGH_TURNS:
                over = ended(stand.tried, stand.log)
                if candidate == AS_GIVEN:
                    self.error = over.error
                return over.refused
        if refused := self.start(candidate):
            return refused
        return self._turn(candidate)

    def _step_seconds(self, stand: _Stand, least: float) -> float:
        """Return the seconds of a step in a turn. Raises RefusedError when the job hangs (for at
        least `least` seconds), and JobEndedError."""
        limit = max(least, LEAST_TURN_PATIENCE, TURN_PATIENCE * stand.allotment.seconds)
        for _ in range(ATTEMPTS):
            idle = self._patient(stand.log, limit)
            taken = stand.tried.take(stand.allotment.executions, idle)
            stand.turns += 1
            if steps := taken.steps[stand.allotment.warm_up :]:
                typical = statistics.median(steps)
                if not stand.tried.applied.choices:
                    self._typical += typical * len(steps)
                    self._counted += sum(steps)
                return typical / stand.tried.per_execution
        raise failed(UsageError(TOO_SELDOM, remedy=None), stand.log)

    def _patient(self, log: Path, limit: float) -> Callable[[], None]:
        """Return a function to call during a job's turn: it receives the others' messages, and
        ends the turn after `limit` seconds by RefusedError."""
        ends = time.monotonic() + limit

        def idle() -> None:
            self._hear()
            if time.monotonic() > ends:
                raise failed(UsageError(f"it hung for {limit:.0f} s", remedy=None), log)

        return idle

    def _hear(self) -> None:
        """Receive the messages of the waiting jobs, except for the job that has its turn."""
        for stand in self._stands.values():
            if stand.tried.standing:
                stand.tried.listen(0)

    def _require(self, found: Framework) -> None:
        """Raises UsageError."""
        if self.framework and self.framework.title != found.title:
            raise UsageError(
                f"the job uses {found.title}, but the saved search used {self.framework.title}",
                remedy="omit --resume to start again",
            )
        self.framework = found
