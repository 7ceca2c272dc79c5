"""Job of one candidate: its way to the step barrier, and the reasons to refuse it.

`Tried` is the job itself: under its choices, watched until its steps wait at the step barrier.
`RefusedError` holds the reason why a job cannot be measured.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable
from pathlib import Path

from dltune.base.errors import DltuneError, JobFailed, UsageError
from dltune.job import protocol
from dltune.job.launch import Job, Process
from dltune.job.protocol import DETACH, REPORT, Orders, machine_lines
from dltune.job.rank_layout import local_rank
from dltune.job.record import NANOSECOND, Record
from dltune.job.subprocesses import last_lines
from dltune.plan.settings.choices import Applied, means_of, variables
from dltune.plan.settings.enforce import Settings
from dltune.plan.settings.setting import Circumstances
from dltune.plan.settings.show import in_words
from dltune.plan.settings.space import by_name
from dltune.profile import breakdown
from dltune.schemas.settings import Choice
from dltune.system.proc.process import mappings
from dltune.tune import guardian
from dltune.tune.candidates import Candidate, Refused
from dltune.tune.guardian import Guardian
from dltune.turns.barrier import SEEKING, HungError, JobEndedError, StepBarrier, Taken, TurnError
from dltune.turns.rounds import Allotment, LateError, SilentError, UnfitError

# share of a step: a longer wait for data is taken for the limit of the step
WAITS = 0.02


class Tried(StepBarrier):
    """Job of one candidate, under its choices, whose steps wait at the step barrier between turns.

    `allotment`: of its turns, once it is ready; `turns`: how many it had; `over`: why it is refused
    already.
    """

    allotment: Allotment

    def __init__(
        self,
        candidate: Candidate,
        here: Circumstances,
        known: tuple[frozenset[str], ...],
        guardian: Guardian,
    ) -> None:
        """`known` as in `StepBarrier`. Raises UsageError when the choices exclude each other."""
        applied = Applied(candidate, means_of(candidate, here))
        settings = Settings(applied, here.machine, watch=variables(here))
        super().__init__(in_words(candidate), settings, known=known)
        self.applied = applied
        self.turns = 0
        self.over: RefusedError | None = None
        self.still = False  # between turns nothing of it runs
        self._here = here
        self._guardian = guardian

    def begin(self, job: Job) -> None:
        super().begin(job)
        self._guardian.begins(job.pid)

    def clean_up(self) -> None:
        """Kill the processes that the job has left behind."""
        guardian.end(self.pid)
        self._guardian.ended(self.pid)

    def release(self) -> None:
        """Let the job go on, also one that is stopped."""
        guardian.thaw(self.pid)
        super().release()

    def greet(self, process: Process) -> list[str]:
        """First orders of a process: the pools, and to report every graph."""
        first = super().greet(process)
        pools = bool(self.applied.means.uniform)
        first += self.settings.greet(process) if pools else machine_lines(self._here.machine)
        return [*first, DETACH, *Orders(SEEKING, discover=self.steps is None).lines()]

    def take(self, executions: int, idle: Callable[[], None] = lambda: None) -> Taken:
        """Take a turn as `StepBarrier.take` does; between turns the job is stopped if necessary."""
        if not self.still:
            return super().take(executions, idle)
        guardian.thaw(self.pid)
        taken = super().take(executions, idle)
        guardian.freeze(self.pid)
        return taken

    @property
    def rests(self) -> bool:
        """True if the whole job must be stopped between turns, for the others' sake or its own.

        Among jobs of ranks, only Horovod's over Open MPI: they wait for each other at full speed,
        and nobody counts the time. Others can give each other up for lost (gloo after half a
        minute).
        """
        return self._spins if self.ranks else self.waits

    @property
    def _spins(self) -> bool:
        assert self.steps is not None
        variables = {name for python in self.sightings.pythons for name in python.environment}
        if not any(name.startswith("OMPI_COMM_WORLD") for name in variables):
            return False
        with contextlib.suppress(OSError):
            return any("/horovod/" in one.path for one in mappings(self.steps.pid))
        return False

    @property
    def waits(self) -> bool:
        """True if its steps wait for their data, or a choice changes how it comes."""
        record, ran = self._main_executions()
        for found in breakdown.parts(record.graphs, ran).values():
            seconds = {part.name: part.seconds for part in found}
            if seconds and seconds["input"] > WAITS * sum(seconds.values()):
                return True
        return any(name.startswith("input_") for name in self.applied.means.hooks)

    @property
    def pace(self) -> float | None:
        """The least seconds so far from one execution of the step's graph to the next. None when
        the step has other graphs too, or there were fewer than two."""
        if self.graphs > 1:
            return None
        _, ran = self._main_executions()
        starts = sorted(execution.start for each in ran.values() for execution in each)
        between = [b - a for a, b in itertools.pairwise(starts)]
        return min(between) * NANOSECOND if between else None

    def _main_executions(self) -> tuple[Record, dict[int, list[protocol.Execution]]]:
        """The record of the process that leads, and its executions of the step's main graph."""
        assert self.steps is not None
        record = self.sightings.records[self.steps.pid]
        main = self.steps.signatures[0]
        ran = {g: e for g, e in record.executions.items() if record.graphs[g].signature == main}
        return record, ran

    @property
    def ranks(self) -> bool:
        """True if the job has several ranks."""
        found = (local_rank(python.environment) for python in self.sightings.pythons)
        return any(rank and rank.size > 1 for rank in found)

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the space, as the process that leads has them after importing TensorFlow."""
        assert self.steps is not None
        return self.settings.environments.get(self.steps.pid, {})

    @property
    def per_execution(self) -> int:
        """Steps that one execution runs."""
        return self.settings.steps

    def idle_choice(self) -> tuple[Choice, str] | None:
        """A choice that there was nothing to act on for in the process that leads, and why."""
        assert self.steps is not None
        for choice in self.applied.choices:
            means = by_name(choice.setting).means(choice.value, self._here)
            hooks = [self.settings.acted.get((self.steps.pid, name)) for name in means.hooks]
            if hooks and not any(told and told.count for told in hooks):
                first = next(filter(None, hooks), None)
                why = (
                    "; ".join(first.left) or first.did
                    if first
                    else "the job reported nothing about it"
                )
                return choice, why
        if self.settings.faults:
            return self.applied.choices[-1], self.settings.faults[0]
        return None

    def ask(self) -> None:
        """Ask for totals, which show why there is no step."""
        for process in self._processes.values():
            process.order([REPORT])


# Reasons why a job was refused

# of the job's output, in a reason
SHOWN_LINES = 3
PORT_TAKEN = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)
TOO_SELDOM = "its main step graph runs too rarely to be timed"


class RefusedError(Exception):
    """Reason why a job was refused: `refused` for the search, and `error` for a person if it is the
    job as given."""

    def __init__(self, refused: Refused, error: DltuneError) -> None:
        super().__init__(refused.why)
        self.refused = refused
        self.error = error


def refusal(tried: Tried, error: TurnError) -> RefusedError:
    """Return the reason to refuse a job that failed in its turn, or on its way to the first
    step."""
    if isinstance(error, UnfitError):
        return failed(error.error, tried.log)
    if isinstance(error, JobEndedError):
        return _ended(tried)
    seconds = f"{error.seconds:.0f} s"
    if isinstance(error, SilentError):
        news = f"no message for {seconds}"
        if not tried.applied.choices:
            tried.ask()
            tried.listen(1.0)
            why = tried.why_not()
            why.args = (f"{why} ({news})",)
            return failed(why, tried.log)
        what = f"it hung: {news} before its first step"
    elif isinstance(error, LateError):
        what = f"it reached no step within {seconds}"
    else:
        what = f"it hung for {seconds}" if isinstance(error, HungError) else TOO_SELDOM
    return failed(UsageError(what, remedy=None), tried.log)


def failed(error: DltuneError, log: Path | None = None, why: str = "") -> RefusedError:
    """The job failed, and wrote its last words to `log`. `why`: the reason for the search
    instead."""
    written = last_lines(log) if log else []
    lines = [line.strip() for line in written if line.strip()][-SHOWN_LINES:]
    said = why or str(error)
    if lines:
        error.args = ("\n  ".join((f"{error}; its last lines:", *lines)), *error.args[1:])
    return RefusedError(Refused("failed", "; ".join([said, *lines])), error)


def _ended(tried: Tried) -> RefusedError:
    """The job has ended by itself before it was measured."""
    code, log = tried.exit_code, tried.log
    if tried.steps is None:
        why = f"exit code {code} before its steps were known"
        if tried.applied.choices and any(map(PORT_TAKEN.search, last_lines(log))):
            why = f"another candidate's job already uses its port; {why}"
        return failed(tried.why_not(), log, why)
    message = f"the job ended with exit code {code} before enough steps were measured"
    if code:
        return failed(JobFailed(message, code), log, f"exit code {code} while it was measured")
    return failed(UsageError(message, remedy="let the job train for more steps"), log)


def no_effect(candidate: Candidate, choice: Choice, why: str) -> RefusedError:
    """There is nothing that one of the candidate's choices acts on."""
    said = why if len(candidate) == 1 else f"{choice}: {why}"
    return RefusedError(Refused("no effect", said), UsageError(said, remedy=None))
