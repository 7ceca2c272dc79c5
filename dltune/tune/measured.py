"""The arena of real jobs: a process (or a launcher with its ranks) for each candidate.

While a job starts, and in each turn, all others stand at their turnstiles. A job that crashes,
hangs, ends too early or never comes to a step is ended whole and refused; nothing else ends.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dltune.bench import usage
from dltune.bench.allotment import FIRST_EXECUTIONS, WARM_UP, Allotment, first_turn
from dltune.bench.jobs import last_lines
from dltune.bench.turnstile import BRIEFLY, JobEndedError
from dltune.errors import DltuneError, JobFailed, UsageError
from dltune.job.launch import Job
from dltune.settings.applied import Applied, as_it_is, means_of
from dltune.settings.setting import Circumstances
from dltune.tune.arena import Refused
from dltune.tune.candidate import AS_GIVEN, Candidate
from dltune.tune.memory import free_bytes, used_bytes
from dltune.tune.tried import Tried

# about how long a turn is, in seconds; and the steps of it that count, for steps up to LONG seconds
# and for longer ones: short turns and many of them decide sooner than long ones
TURN_SECONDS, LONG = 0.6, 1.0
SHORT_STEPS, LONG_STEPS = 2, 1
# candidates that may stand at once, where there is memory for them
MOST = 6
# of the memory, left to others
SPARE = 0.1
# a candidate may take so many times as long as the job as given to come to its steps, and for a
# turn; at least so many seconds
PATIENCE, LEAST_PATIENCE = 4.0, 30.0
TURN_PATIENCE, LEAST_TURN_PATIENCE = 20.0, 20.0
# a job that ended by itself after so many turns is started again
ENOUGH_TURNS = 3
# how often a turn in which no step began and ended is given again
ATTEMPTS = 3
MORE_STEPS = "let it train for more steps"
# of the job's output, in a reason
SHOWN_LINES = 3


@dataclass
class _Stand:
    """A candidate that stands ready. `closing` ends its job."""

    tried: Tried
    allotment: Allotment
    log: Path
    closing: contextlib.ExitStack
    turns: int = 0


class _RefusedError(Exception):
    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.why)
        self.refused = refused


class Measured:
    """`Arena` for a job. Use as a context manager within `bench.jobs.all_ended`'s."""

    def __init__(
        self,
        here: Circumstances,
        *,
        budget: float,
        patience: float,
        verbose: bool,
        tensorflow: str = "",
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`budget`: seconds from now on. `patience`: for how long the job as given may tell nothing
        before its first step. `tensorflow`: the version that it must have (empty: any). `tell` is
        given what a start waits for."""
        self.error: DltuneError | None = None  # why the job as given cannot be measured
        self.tensorflow = tensorflow
        self._here = here
        self._ends = time.monotonic() + budget
        self._patience = patience
        self._verbose = verbose
        self._tell = tell
        self._known: tuple[frozenset[str], ...] = ()
        self._first_start: float | None = None  # seconds that the job as given took to its steps
        self._given: dict[str, str] | None = None  # variables of the job as given
        self._largest = 0
        self._number = 0
        self._stands: dict[Candidate, _Stand] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Measured:
        made = tempfile.TemporaryDirectory(prefix="dltune-tune-")
        self._folder = Path(self._stack.enter_context(made))
        return self

    def __exit__(self, *_: object) -> None:
        with self._stack:
            for stand in self._stands.values():
                self._stack.push(stand.closing)
            self._stands.clear()

    # --- what the search sees

    @property
    def room(self) -> int:
        if not self._largest:
            return MOST
        free, total = free_bytes()
        more = math.floor((free - SPARE * total) / self._largest)
        return max(2, min(MOST, len(self._stands) + more))

    def left(self) -> float:
        return self._ends - time.monotonic()

    def start(self, candidate: Candidate) -> Refused | None:
        try:
            self._stands[candidate] = self._started(candidate)
        except _RefusedError as error:
            return error.refused
        return None

    def round(self, candidates: Sequence[Candidate]) -> Mapping[Candidate, float | Refused]:
        return {candidate: self._turn(candidate) for candidate in candidates}

    def drop(self, candidate: Candidate) -> None:
        self._stands.pop(candidate).closing.close()

    # --- starting

    def _started(self, candidate: Candidate) -> _Stand:
        """Raises _RefusedError."""
        with contextlib.ExitStack() as stack:
            try:
                applied = Applied(candidate, means_of(candidate, self._here))
                command = applied.command(self._here.command)
            except UsageError as error:
                raise _RefusedError(Refused("failed", str(error))) from None
            for choice in candidate:
                if self._given is not None and as_it_is(choice, self._here, self._given):
                    told = f"{choice.setting}={choice.value}: the job is like that as it is given"
                    raise _RefusedError(Refused("no effect", told))
            tried = Tried(applied, self._here, self._known)
            log = self._folder / f"{self._number}.log"
            self._number += 1
            job = self._launched(tried, command, log, stack)
            began = time.monotonic()
            try:
                self._wait(tried, candidate, log)
                if idle := tried.idle_choice():
                    choice, why = idle
                    told = f"{choice.setting}={choice.value}: {why}"
                    raise _RefusedError(Refused("no effect", told))
                allotment = self._allotment(tried, candidate, log)
            except JobEndedError:
                raise self._ended(tried, candidate, log) from None
            if self._first_start is None:
                assert tried.steps is not None
                self._first_start = time.monotonic() - began
                self._known = tried.steps.nodes
                self._given = tried.environment
                self._require_tensorflow(tried.version)
            self._largest = max(self._largest, used_bytes(job.pid))
            return _Stand(tried, allotment, log, stack.pop_all())

    def _launched(
        self, tried: Tried, command: Sequence[str], log: Path, stack: contextlib.ExitStack
    ) -> Job:
        with open(log, "wb") as file:
            to = 2 if self._verbose else file.fileno()
            job = Job(
                command,
                answer=tried.answer,
                greet=tried.greet,
                environment=tried.applied.environment(os.environ),
                stdout=to,
                stderr=to,
            )
        stack.callback(_end_rest, job.pid)
        stack.enter_context(job)
        stack.callback(tried.release)  # who stands at the turnstile cannot handle a signal
        tried.begin(job)
        return job

    def _wait(self, tried: Tried, candidate: Candidate, log: Path) -> None:
        """Until the candidate stands before a step. Raises _RefusedError and JobEndedError."""
        began = time.monotonic()
        silence = self._patience
        if self._first_start is not None:
            silence = min(silence, max(LEAST_PATIENCE, PATIENCE * self._first_start))
        while not tried.standing:
            try:
                tried.listen(BRIEFLY, until=lambda: tried.standing)
            except DltuneError as error:
                raise self._refused(candidate, error, log) from None
            if tried.ended:
                raise JobEndedError
            self._hear_others(tried)
            now = time.monotonic()
            if tried.building and not tried.seen.records:
                self._tell("building the plugin for the job's TensorFlow")
            elif now - tried.news > silence:
                tried.ask()
                tried.listen(1.0)
                when = f"{silence:.0f} s without news"
                raise self._refused(candidate, tried.why_no_step(), log, when)
            elif self._first_start is not None and now - began > 2 * silence:
                late = UsageError(f"it did not come to a step within {2 * silence:.0f} s")
                raise self._refused(candidate, late, log)

    def _allotment(self, tried: Tried, candidate: Candidate, log: Path) -> Allotment:
        """Raises _RefusedError and JobEndedError."""
        idle = self._patient(tried, candidate, log, self._patience)
        first = max(WARM_UP + 1, FIRST_EXECUTIONS // tried.per_execution)
        found = first_turn(tried, tried.graphs, TURN_SECONDS, SHORT_STEPS, idle, first)
        if found is None:
            why = "its main step graph runs too seldom among the others to be timed"
            raise self._refused(candidate, UsageError(why), log)
        step, each = found.seconds / found.steps, found.executions / found.steps
        if step < LONG:
            return found
        steps = LONG_STEPS + WARM_UP + (tried.graphs > 1)
        return Allotment(math.ceil(steps * each), steps, steps * step)

    # --- turns

    def _turn(self, candidate: Candidate) -> float | Refused:
        """A turn; a job that has come to its end after some of them is started again."""
        stand = self._stands[candidate]
        try:
            return self._step_seconds(candidate, stand)
        except _RefusedError as error:
            self.drop(candidate)
            return error.refused
        except JobEndedError:
            self.drop(candidate)
            if stand.tried.exit_code or stand.turns < ENOUGH_TURNS:
                return self._ended(stand.tried, candidate, stand.log).refused
        if refused := self.start(candidate):
            return refused
        return self._turn(candidate)

    def _step_seconds(self, candidate: Candidate, stand: _Stand) -> float:
        """Raises _RefusedError when the job hangs, and JobEndedError."""
        limit = max(LEAST_TURN_PATIENCE, TURN_PATIENCE * stand.allotment.seconds)
        for _ in range(ATTEMPTS):
            idle = self._patient(stand.tried, candidate, stand.log, limit)
            taken = stand.tried.take(stand.allotment.executions, idle)
            stand.turns += 1
            if steps := taken.steps[WARM_UP:]:
                return statistics.median(steps) / stand.tried.per_execution
        why = "its main step graph runs too seldom among the others to be timed"
        raise self._refused(candidate, UsageError(why), stand.log)

    def _patient(
        self, tried: Tried, candidate: Candidate, log: Path, limit: float
    ) -> Callable[[], None]:
        """To be called while a job has its turn: hears the others; ends the turn after `limit`
        seconds by _RefusedError."""
        ends = time.monotonic() + limit

        def idle() -> None:
            self._hear_others(tried)
            if time.monotonic() > ends:
                raise self._refused(candidate, UsageError(f"it hung for {limit:.0f} s"), log)

        return idle

    def _hear_others(self, tried: Tried) -> None:
        for stand in self._stands.values():
            if stand.tried is not tried:
                stand.tried.listen(0)

    def _require_tensorflow(self, version: str) -> None:
        if self.tensorflow not in ("", version):
            raise UsageError(
                f"the job has TensorFlow {version}; the search that is taken up was on "
                f"{self.tensorflow}",
                remedy="leave --resume out to begin anew",
            )
        self.tensorflow = version

    # --- refusing

    def _ended(self, tried: Tried, candidate: Candidate, log: Path) -> _RefusedError:
        """A job that has ended by itself."""
        if tried.steps is None:
            return self._refused(candidate, tried.why_no_step(), log)
        code = tried.exit_code
        message = f"the job ended with exit code {code} before enough was measured"
        if code:
            return self._refused(candidate, JobFailed(message, code), log)
        return self._refused(candidate, UsageError(message, remedy=MORE_STEPS), log)

    def _refused(
        self, candidate: Candidate, error: DltuneError, log: Path, when: str = ""
    ) -> _RefusedError:
        if candidate == AS_GIVEN:
            if when:
                error.args = (f"{error} ({when})",)
            self.error = error
        why = f"{error} ({when})" if when and candidate != AS_GIVEN else str(error)
        lines = [line.strip() for line in last_lines(log) if line.strip()][-SHOWN_LINES:]
        return _RefusedError(Refused("failed", "; ".join([why, *lines])))


def _end_rest(session: int) -> None:
    """Kill what a job has left behind in its session."""
    for pid in usage.members(session):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
