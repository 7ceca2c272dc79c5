"""Job of one candidate: its start, its way to the step barrier, and the reasons to refuse it.

`launch` starts a candidate's job and returns it as `Starting`, on its way to its first step.
`Tried` is the job itself: under its choices, watched until its steps wait at the step barrier.
`RefusedError` holds the reason why a job cannot be measured.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dltune.base.errors import DltuneError, JobFailed, UsageError
from dltune.job import protocol, rank_layout
from dltune.job.failures import why_no_step
from dltune.job.launch import Event, Job, Process
from dltune.job.protocol import DETACH, REPORT, Orders, machine_lines
from dltune.job.rank_layout import local_rank
from dltune.job.record import NANOSECOND, Record
from dltune.job.subprocesses import last_lines
from dltune.plan.settings.choices import Applied, means_of, variables
from dltune.plan.settings.enforce import Settings
from dltune.plan.settings.setting import Circumstances
from dltune.plan.settings.space import by_name
from dltune.profile import breakdown
from dltune.schemas.settings import Choice
from dltune.system.proc.process import mappings
from dltune.tune import guardian
from dltune.tune.candidates import Candidate, Refused
from dltune.tune.guardian import Guardian, end, thaw
from dltune.turns import BRIEFLY, StepBarrier, StepGraphs, Taken

_DISCOVERING, _STANDING = 1, 2
# share of a step: a longer wait for data is taken for the limit of the step
WAITS = 0.02


class Tried(StepBarrier):
    """Job of one candidate, under its choices, whose steps wait at the step barrier between turns.

    Of several ranks one leads, the first whose steps are found: the others wait for it in their
    collectives, so it alone waits at the step barrier.
    """

    def __init__(
        self, applied: Applied, here: Circumstances, known: tuple[frozenset[str], ...]
    ) -> None:
        """`known` as in `StepBarrier`."""
        super().__init__((), known=known)
        self.applied = applied
        self.still = False  # between turns nothing of it runs
        self._here = here
        self._settings = Settings(applied, here.machine, watch=variables(here))
        self._processes: dict[int, Process] = {}

    def answer(self, python: protocol.Python) -> dict[str, object]:
        """The settings, and the plugin in any case."""
        return {**self._settings.answer(python), "plugin": True}

    def greet(self, process: Process) -> list[str]:
        """First orders of a process: the pools, and to report every graph."""
        self.sightings.records[process.pid] = Record(process.hello)
        self._processes[process.pid] = process
        pools = bool(self.applied.means.uniform)
        first = self._settings.greet(process) if pools else machine_lines(self._here.machine)
        return [*first, DETACH, *Orders(_DISCOVERING, discover=self.steps is None).lines()]

    def take(self, executions: int, idle: Callable[[], None] = lambda: None) -> Taken:
        """Take a turn as `StepBarrier.take` does; between turns the job is stopped if necessary."""
        assert self._job is not None
        if not self.still:
            return super().take(executions, idle)
        guardian.thaw(self._job.pid)
        taken = super().take(executions, idle)
        guardian.freeze(self._job.pid)
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
        return self._settings.environments.get(self.steps.pid, {})

    @property
    def per_execution(self) -> int:
        """Steps that one execution runs."""
        return self._settings.steps

    def idle_choice(self) -> tuple[Choice, str] | None:
        """A choice that there was nothing to act on for in the process that leads, and why."""
        assert self.steps is not None
        for choice in self.applied.choices:
            means = by_name(choice.setting).means(choice.value, self._here)
            hooks = [self._settings.acted.get((self.steps.pid, name)) for name in means.hooks]
            if hooks and not any(told and told.count for told in hooks):
                first = next(filter(None, hooks), None)
                why = (
                    "; ".join(first.left) or first.did
                    if first
                    else "the job reported nothing about it"
                )
                return choice, why
        if self._settings.faults:
            return self.applied.choices[-1], self._settings.faults[0]
        return None

    def ask(self) -> None:
        """Ask for totals, which show why there is no step."""
        for process in self._processes.values():
            process.order([REPORT])

    def why_no_step(self) -> DltuneError:
        """The error with the reason why the job has not come to a step."""
        return why_no_step(self.sightings, self.exit_code)

    def _hear(self, event: Event) -> None:
        self._settings.hear(event)
        super()._hear(event)

    def _stop_at(self, found: StepGraphs) -> None:
        """Let the process that leads wait before its next step, and all report no more than
        that."""
        for process in self._processes.values():
            leads = process.pid == found.pid
            targets = found.signatures if leads else ()
            process.order(Orders(_STANDING, targets=targets, barrier=leads).lines())


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


def failed(error: DltuneError, log: Path | None = None, why: str = "") -> RefusedError:
    """The job failed, and wrote its last words to `log`. `why`: the reason for the search
    instead."""
    written = last_lines(log) if log else []
    lines = [line.strip() for line in written if line.strip()][-SHOWN_LINES:]
    said = why or str(error)
    if lines:
        error.args = ("\n  ".join((f"{error}; its last lines:", *lines)), *error.args[1:])
    return RefusedError(Refused("failed", "; ".join([said, *lines])), error)


def ended(tried: Tried, log: Path) -> RefusedError:
    """The job has ended by itself before it was measured."""
    code = tried.exit_code
    if tried.steps is None:
        why = f"exit code {code} before its steps were known"
        if tried.applied.choices and any(map(PORT_TAKEN.search, last_lines(log))):
            why = f"another candidate's job already uses its port; {why}"
        return failed(tried.why_no_step(), log, why)
    message = f"the job ended with exit code {code} before enough steps were measured"
    if code:
        return failed(JobFailed(message, code), log, f"exit code {code} while it was measured")
    return failed(UsageError(message, remedy="let the job train for more steps"), log)


def no_effect(candidate: Candidate, choice: Choice, why: str) -> RefusedError:
    """There is nothing that one of the candidate's choices acts on."""
    said = why if len(candidate) == 1 else f"{choice}: {why}"
    return RefusedError(Refused("no effect", said), UsageError(said, remedy=None))


# The start of a job


@dataclass
class Starting:
    """A candidate's job on its way to its first step.

    `closing` ends the job. `over`: why it is refused already.
    """

    candidate: Candidate
    pid: int
    tried: Tried
    log: Path
    closing: contextlib.ExitStack
    over: RefusedError | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def ready(self) -> bool:
        """True if there is nothing more to wait for."""
        return self.over is not None or self.tried.standing

    def look(self, silence: float, longest: float) -> None:
        """Receive the job's messages. A job that has ended, has sent nothing for `silence` seconds
        or has not come to a step in `longest` is refused, and ended whole."""
        if self.ready:
            return
        try:
            self._look(silence, longest)
        except RefusedError as error:
            self.over = error
            self.closing.close()

    def _look(self, silence: float, longest: float) -> None:
        tried = self.tried
        try:
            tried.listen(BRIEFLY, until=lambda: tried.standing)
        except DltuneError as error:
            raise failed(error, self.log) from None
        now = time.monotonic()
        if tried.standing or self.building:
            return
        if tried.ended:
            raise ended(tried, self.log)
        if now - tried.news > silence:
            news = f"no message for {silence:.0f} s"
            if self.candidate:
                hung = UsageError(f"it hung: {news} before its first step", remedy=None)
                raise failed(hung, self.log)
            tried.ask()
            tried.listen(1.0)
            why = tried.why_no_step()
            why.args = (f"{why} ({news})",)
            raise failed(why, self.log)
        if now - self.began > longest:
            late = UsageError(f"it reached no step within {longest:.0f} s", remedy=None)
            raise failed(late, self.log)

    @property
    def building(self) -> bool:
        """True if the plugin is being built for the job's framework."""
        return self.tried.building and not self.tried.sightings.records


def launch(
    candidate: Candidate,
    here: Circumstances,
    known: tuple[frozenset[str], ...],
    log: Path,
    guardian: Guardian,
    *,
    verbose: bool,
) -> Starting:
    """Start a candidate's job; what it writes goes to `log`, or to stderr when `verbose`.

    Raises UsageError when its choices exclude each other, or the command cannot be started.
    """
    applied = Applied(candidate, means_of(candidate, here))
    tried = Tried(applied, here, known)
    with contextlib.ExitStack() as stack, open(log, "wb") as file:
        to = 2 if verbose else file.fileno()
        command, environment = rank_layout.with_own_port(
            applied.command(here.command), applied.environment(os.environ)
        )
        job = Job(
            command,
            answer=tried.answer,
            greet=tried.greet,
            environment=environment,
            stdout=to,
            stderr=to,
        )
        guardian.begins(job.pid)
        stack.callback(guardian.ended, job.pid)
        stack.callback(end, job.pid)  # the processes that it has left behind
        stack.enter_context(job)
        # a process that waits at the step barrier, or is stopped, cannot handle a signal
        stack.callback(tried.release)
        stack.callback(thaw, job.pid)
        tried.begin(job)
        return Starting(candidate, job.pid, tried, log, stack.pop_all())
