"""A candidate's job on its way to its first step."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from dltune.base.errors import DltuneError, UsageError
from dltune.job import rank_layout
from dltune.job.launch import Job
from dltune.plan.settings.applied import Applied, means_of
from dltune.plan.settings.setting import Circumstances
from dltune.tune import frozen
from dltune.tune.candidate import Candidate
from dltune.tune.guardian import Guardian
from dltune.tune.refusal import RefusedError, ended, failed
from dltune.tune.tried import Tried
from dltune.turns.step_barrier import BRIEFLY


@dataclass
class Starting:
    """`closing` ends the job. `over`: why it is refused already."""

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
        stack.callback(frozen.end, job.pid)  # the processes that it has left behind
        stack.enter_context(job)
        # a process that waits at the step barrier, or is stopped, cannot handle a signal
        stack.callback(tried.release)
        stack.callback(frozen.thaw, job.pid)
        tried.begin(job)
        return Starting(candidate, job.pid, tried, log, stack.pop_all())
