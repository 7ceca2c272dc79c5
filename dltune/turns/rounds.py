"""The engine of turns: jobs start, wait at their step barriers, and take turns in rounds.

1. `RunningJobs` starts each job with a log, and ends all of them.
2. `arrivals` waits until the jobs stand at their step barriers.
3. `first_turn` warms a job up, and finds the length of its turn.
4. `rotated` gives the order of each round, and `watched` notices that a job hangs in its turn.
5. A job that ends, hangs or never stands raises a `TurnError`, which names it.

`Rounds` drives all of this for jobs that start together and all stay to the end: those of
`dltune bench` and of a launch of `dltune gate`. The jobs of `dltune tune` differ: they come and go
while others take turns, each has turns of its own length, one that fails is refused without an
error, and one whose data would come to rest is stopped between its turns. So `tune/evaluation.py`
calls the parts itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from dltune.base.errors import DltuneError, JobFailed, UsageError
from dltune.job import protocol, rank_layout
from dltune.job.launch import Job, Process
from dltune.schemas.bench import Turn
from dltune.turns.barrier import (
    BRIEFLY,
    HungError,
    JobEndedError,
    StepBarrier,
    Taken,
    TurnError,
)

AnyJob = TypeVar("AnyJob", bound=StepBarrier)
Item = TypeVar("Item")

# Processes: started with a log each, and ended together

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore however many times somebody presses Ctrl-C meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # one that Python has not set
                signal.signal(number, handler)


def logged_job(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    *,
    greet: Callable[[Process], list[str]],
    answer: Callable[[protocol.Python], dict[str, object]] = lambda _: {},
    folder: Path | None = None,
    verbose: bool = False,
) -> Job:
    """Start a command whose ranks meet at a free port; its output goes to `log`, or to stderr when
    `verbose`. `environment` is added to dltune's own. Raises as `Job`."""
    words, variables = rank_layout.with_own_port(command, environment)
    with open(log, "wb") as file:
        to = 2 if verbose else file.fileno()
        return Job(
            words,
            answer=answer,
            greet=greet,
            environment=variables,
            stdout=to,
            stderr=to,
            folder=folder,
        )


class RunningJobs:
    """Jobs that run, with a log each in a folder of temporary files.

    Use as a context manager: leaving the block ends all jobs, however often somebody presses Ctrl-C
    meanwhile.
    """

    def __init__(self, prefix: str, *, verbose: bool = False, temporary: str | None = None) -> None:
        """`verbose`: True if the jobs write to stderr instead. `temporary`: where the folder is
        (None: the usual place)."""
        self._prefix = prefix
        self._temporary = temporary
        self._verbose = verbose
        self._numbers = itertools.count()
        self._running: dict[StepBarrier, contextlib.ExitStack] = {}

    def __enter__(self) -> RunningJobs:
        self._logs = tempfile.TemporaryDirectory(prefix=self._prefix, dir=self._temporary)
        return self

    def __exit__(self, *error: Any) -> None:
        with undisturbed(), self._logs:
            stack = contextlib.ExitStack()
            for closing in self._running.values():
                stack.push(closing)
            stack.__exit__(*error)

    def start(
        self,
        job: StepBarrier,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        """Start a job's command under its settings. Raises UsageError when that is impossible."""
        applied = job.settings.applied
        job.log = Path(self._logs.name) / f"{next(self._numbers)}.log"
        job.began = time.monotonic()
        running = logged_job(
            applied.command(command),
            {**(environment or {}), **applied.environment(os.environ)},
            job.log,
            greet=job.greet,
            answer=job.answer,
            folder=folder,
            verbose=self._verbose,
        )
        closing = self._running[job] = contextlib.ExitStack()
        closing.callback(job.clean_up)
        closing.enter_context(running)
        # before the job is ended: who waits at the step barrier cannot handle a signal
        closing.callback(job.release)
        job.begin(running)

    def end(self, job: StepBarrier) -> None:
        """End a job, if it still runs."""
        if job in self._running:
            self._running.pop(job).close()


# The way to the first step


class SilentError(TurnError):
    """The job sent no message for `seconds` before its first step."""


class LateError(TurnError):
    """The job came to no step within `seconds`."""


class UnfitError(TurnError):
    """The job cannot run under its settings, for the reason `error`."""

    def __init__(self, job: StepBarrier, error: DltuneError) -> None:
        super().__init__(job)
        self.error = error


def arrivals(
    jobs: Sequence[AnyJob],
    tell: Callable[[int, bool], object],
    *,
    silence: float,
    longest: float = math.inf,
    others: Iterable[StepBarrier] = (),
) -> Iterator[tuple[AnyJob, TurnError]]:
    """Wait until all jobs wait at the step barrier; yield each that will not come there, and why.

    It cannot run under its settings, it has ended, it has sent nothing for `silence` seconds, or
    it started more than `longest` seconds ago. No limit holds while its plugin is being
    built. `tell` receives the number of jobs that wait, and whether a plugin is being built.
    `others` wait already.
    """
    waited = [job for job in jobs if not job.standing]
    while waited:
        building = any(job.building and not job.sightings.records for job in waited)
        tell(len(jobs) - len(waited), building)
        for job in list(waited):
            if error := _missing(job, silence, longest):
                waited.remove(job)
                yield job, error
        _hear(others)
        waited = [job for job in waited if not job.standing]


def _missing(job: StepBarrier, silence: float, longest: float) -> TurnError | None:
    """Receive the job's messages for a moment, and return why it does not come to its first
    step."""
    try:
        job.listen(BRIEFLY, until=lambda: job.standing)
    except DltuneError as error:
        return UnfitError(job, error)
    now = time.monotonic()
    if job.standing:
        return None
    if job.ended:
        return JobEndedError(job)
    if job.building and not job.sightings.records:
        return None
    if now - job.news > silence:
        return SilentError(job, silence)
    return LateError(job, longest) if now - job.began > longest else None


# In a turn


def rotated(items: Sequence[Item], number: int) -> list[Item]:
    """Return the order of a round: rotated by one each round, a Latin square, in which each item
    has every place alike."""
    first = number % len(items)
    return [*items[first:], *items[:first]]


def watched(
    job: StepBarrier,
    others: Iterable[StepBarrier],
    *,
    silence: float = math.inf,
    limit: float = math.inf,
) -> Callable[[], None]:
    """Return the `idle` of a job's turn: it receives the messages of those that wait, and raises
    HungError when the job sends nothing for `silence` seconds, or has its turn for more than
    `limit` seconds."""
    ends = time.monotonic() + limit

    def idle() -> None:
        _hear(others)
        now = time.monotonic()
        if now - job.news > silence:
            raise HungError(job, silence)
        if now > ends:
            raise HungError(job, limit)

    return idle


def _hear(jobs: Iterable[StepBarrier]) -> None:
    """Receive the messages of the jobs that wait at the step barrier."""
    for job in jobs:
        if job.standing:
            job.listen(0)


# Length of a turn


class SeldomError(TurnError):
    """The job's main step graph runs too rarely between its other graphs to be timed."""


# steps of a turn: one that warms up, and at least so many that count
WARM_UP, LEAST_STEPS = 1, 3
# executions of each step graph in a job's first turn, which is not counted: kernels are made in it,
# and it shows how long a step takes
FIRST_EXECUTIONS = 4
# how often the first turn is doubled where it showed no whole step
FIRST_TURNS = 5
# executions of each step graph that show whether some take much longer than the first ones: between
# short epochs, or next to others on the machine
EPOCHS = 32
# times as long as planned that a turn can take
LONGEST = 4.0


@dataclass(frozen=True)
class Allotment:
    """Number of executions in a job's turn, found in a first turn that is not counted.

    A turn: so many executions, at least `least`, which are so many steps and take so many seconds.
    The first `warm_up` of its steps do not count. `share`: of it, as much as takes no longer than
    planned, where some steps take much longer than the first ones.
    """

    executions: int
    steps: float
    seconds: float
    least: int
    warm_up: int = WARM_UP
    share: float = 1.0

    def shortened(self, share: float) -> Allotment:
        """Return the allotment with that share of the executions, but at least `least`."""
        executions = max(min(self.least, self.executions), math.ceil(self.executions * share))
        share = executions / self.executions
        return dataclasses.replace(
            self,
            executions=executions,
            steps=share * self.steps,
            seconds=share * self.seconds,
            share=1.0,
        )


def first_turn(
    barrier: StepBarrier,
    seconds: float,
    least: int = LEAST_STEPS,
    idle: Callable[[], None] = lambda: None,
    first: int = FIRST_EXECUTIONS,
) -> Allotment:
    """Warm up, and find out how long the job's turn is: about so many seconds, and at least `least`
    steps that count. `idle` as in `StepBarrier.take`; `first`: executions of each graph to begin
    with.

    Raises JobEndedError when the job ends first, and SeldomError.
    """
    executions = first * barrier.graphs
    for _ in range(FIRST_TURNS):
        taken = barrier.take(executions, idle)
        if taken.steps[WARM_UP:] and taken.per_step:
            step = min(taken.steps)
            wanted = max(least, math.ceil(seconds / step)) + WARM_UP
            # with several step graphs the last step is not seen to end
            wanted += barrier.graphs > 1
            # an execution can run several steps: each that counts needs another before it
            fewest = WARM_UP + 1 + (barrier.graphs > 1)
            executions = max(fewest, math.ceil(wanted * taken.per_step))
            steps = executions / taken.per_step
            counted = WARM_UP + least + (barrier.graphs > 1)
            fewest = max(fewest, math.ceil(counted * taken.per_step))
            found = Allotment(executions, steps, max(wanted, steps) * step, fewest)
            sample = EPOCHS * barrier.graphs
            if executions <= sample:
                return found
            return dataclasses.replace(found, share=_share(found, barrier.take(sample, idle)))
        executions *= 2
    raise SeldomError(barrier)


def _share(planned: Allotment, sample: Taken) -> float:
    """Share of a turn that takes at most LONGEST times the planned seconds, without the sample's
    longest execution: it can hold a validation, which does not come again soon."""
    longest = max(sample.steps, default=0.0) / min(1.0, sample.per_step or 1.0)
    seconds = LONGEST * planned.seconds * sample.executions / planned.executions
    return min(1.0, seconds / max(sample.seconds - longest, seconds))


# Rounds of jobs that all stay to the end

# rounds that are taken however long they are
LEAST_ROUNDS = 10
# seconds without news after which a job that has its turn is taken to hang
HUNG = 600.0
HUNG_REMEDY = "pass a longer --wait if a step of the job takes that long"
MORE_STEPS = "train for more steps, or shorten the turns with --seconds-per-turn"


@dataclass(frozen=True)
class Progress:
    """`round` counts from 1, 0 before the first. `left` is in seconds, None while not known."""

    phase: str
    round: int = 0
    left: float | None = None


@dataclass(eq=False)
class Rounds(Generic[AnyJob]):
    """Rounds of jobs that have started. `run` blocks until all rounds are over or a job fails.

    `seconds`: about how long a turn is; `patience`: seconds for which a job can send no message
    before its first step. `enough`: most seconds of all rounds; if they would take longer, there
    are fewer rounds, but at least `LEAST_ROUNDS`. `keep` is called after each round. `watch` is
    called before a round; its result returns True after the round to take it again.

    `turns` by the name of the job. `fault`: the job that ended or hung too early, and how.
    """

    jobs: Sequence[AnyJob]
    _: KW_ONLY
    rounds: int
    seconds: float
    patience: float
    tell: Callable[[Progress], None]
    keep: Callable[[], object]
    enough: float = math.inf
    watch: Callable[[], Callable[[], bool]] = lambda: lambda: False
    partial: str | None = field(default="interrupted before the first round", init=False)
    turns: dict[str, list[Turn]] = field(init=False)
    fault: TurnError | None = field(default=None, init=False)
    _number: int = field(default=0, init=False)  # of the rounds that are over

    def __post_init__(self) -> None:
        self.turns = {job.name: [] for job in self.jobs}

    def run(self) -> None:
        """Measure. When a job ends or hangs before all rounds, `partial` says so and `turns` has
        the rest.

        Raises a DltuneError when a job does not come to a step, or ends before one turn is over.
        """
        try:
            self._run()
        except TurnError as error:
            self.fault = error
            if not any(self.turns.values()):
                raise explained(error) from None
            what = f"{explained(error)}," if isinstance(error, HungError) else _ended(error.job)
            self.partial = f"{what} in round {self._number + 1} of {self.rounds}"
            self.keep()

    def take(self, job: AnyJob, executions: int) -> Taken:
        """Take a turn, in a round or outside. Raises TurnError when the job ends or hangs."""
        return job.take(executions, self._watched(job))

    def _run(self) -> None:
        for _, error in arrivals(self.jobs, self._tell_waiting, silence=self.patience):
            raise error
        first = {job: self._first_turn(job) for job in self.jobs}
        # the fixed cost of a turn is an equal share of each job's steps
        share = min(allotment.share for allotment in first.values())
        allotments = {job: first[job].shortened(share) for job in self.jobs}
        whole = sum(a.seconds for a in allotments.values())
        if self.rounds * whole > self.enough:
            self.rounds = min(self.rounds, max(LEAST_ROUNDS, int(self.enough / whole)))
        began = time.monotonic()
        while (number := self._number) < self.rounds:
            self.partial = f"interrupted in round {number + 1} of {self.rounds}"
            spoilt = self.watch()
            for place, job in enumerate(rotated(self.jobs, number)):
                spent = (time.monotonic() - began) / number if number else whole
                left = spent * (self.rounds - number - place / len(self.jobs))
                self.tell(Progress(job.name, number + 1, left))
                self._turn(job, allotments[job], number)
            _hear(self.jobs)  # messages of a waiting job's other processes
            if spoilt():
                for turns in self.turns.values():
                    turns[:] = [turn for turn in turns if turn.round < number]
                continue
            if number + 1 == self.rounds:
                self.partial = None
            self.keep()
            self._number += 1

    def _tell_waiting(self, ready: int, building: bool) -> None:
        phase = f"waiting for the first steps of the jobs, {ready} of {len(self.jobs)} ready"
        if building:
            phase = "building the plugin for the framework of the job"
        self.tell(Progress(phase))

    def _first_turn(self, job: AnyJob) -> Allotment:
        self.tell(Progress(f"warming up {job.name}"))
        return first_turn(job, self.seconds, idle=self._watched(job))

    def _turn(self, job: AnyJob, allotment: Allotment, number: int) -> None:
        taken = self.take(job, allotment.executions)
        steps = taken.steps[allotment.warm_up :]
        if steps:  # none where something else, such as another epoch's graphs, took the turn
            self.turns[job.name].append(
                Turn(
                    round=number,
                    steps=steps,
                    cpu_seconds=taken.used.cpu / allotment.steps,
                    voluntary=taken.used.voluntary / allotment.steps,
                    involuntary=taken.used.involuntary / allotment.steps,
                    faults=taken.used.faults / allotment.steps,
                    scheduling=taken.scheduling[allotment.warm_up :],
                )
            )

    def _watched(self, job: AnyJob) -> Callable[[], None]:
        return watched(job, self.jobs, silence=max(HUNG, self.patience))


def _ended(job: StepBarrier) -> str:
    return f"the job under {job.name} ended (exit code {job.exit_code})"


def explained(error: TurnError) -> DltuneError:
    """Return the error for a person, which says under which setting the job failed, and when."""
    job = error.job
    if isinstance(error, UnfitError):
        return error.error
    when = ""
    made: DltuneError
    if isinstance(error, HungError):
        made = UsageError("the job hangs in a step", remedy=HUNG_REMEDY)
        when = f" (no message for {error.seconds:g} s)"
    elif isinstance(error, SeldomError):
        made = UsageError(
            "the job's main step graph runs too rarely between its other graphs to be timed",
            remedy="profile and plan the job again",
        )
    elif job.stood is None:
        made = job.why_not()
        if isinstance(error, SilentError):
            when = f" (no message for {error.seconds:g} s)"
    else:
        message = f"the job ended with exit code {job.exit_code} before anything was measured"
        code = job.exit_code
        made = JobFailed(message, code) if code else UsageError(message, remedy=MORE_STEPS)
    made.args = (f"under {job.name}{when}: {made}",)
    return made
