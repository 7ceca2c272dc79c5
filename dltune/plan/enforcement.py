"""A section of a plan in force on one job: what it asks of a run.

The sections of a plan are composed in one order (`registry.composed`). Each finds in `Run` what
those before it have decided, and leaves there what those after it must know.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dltune.base.tables import Table
from dltune.job import messages
from dltune.job.launch import Event, Job, Process
from dltune.job.shares import Shares
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Plan
from dltune.schemas.sections.threads import Uniform


@dataclass
class Run:
    """One job that is to run under a plan.

    `environment`: that in which dltune itself runs. `partial`: what does not fit is left out, and
    told by `say`. `shares`: each rank's part of the cores. `pools`: the framework's own pools of
    threads in a process, by its part of the machine and its rank (gives None: they are left alone;
    is None: no section has a use for the plugin).
    `changes`: by what of itself the plan has changed the graphs of a process since its profile, in
    a few words (empty: by nothing), by pid.
    """

    plan: Plan
    machine: Machine
    command: Sequence[str]
    environment: Mapping[str, str]
    partial: bool
    say: Callable[[str], None]
    shares: Shares
    pools: Callable[[Machine, int | None], Uniform | None] | None = None
    changes: list[Callable[[int], str]] = field(default_factory=list)

    def needs_plugin(self) -> None:
        """Whatever becomes of the framework's pools."""
        if self.pools is None:
            self.pools = lambda *_: None

    def changed(self, pid: int) -> str:
        """By what of itself the plan has changed the graphs of this process; empty: by nothing."""
        return next(filter(None, (change(pid) for change in reversed(self.changes))), "")


@dataclass(frozen=True)
class Outcome:
    """What came of a section in a job that has ended. `document`: for `dltune run --json`.
    `sentences`: for a person."""

    document: Any
    sentences: Sequence[str]


class Enforcement:
    """Does nothing to a job; a planner's own overrides what it does.

    `inside`: it needs dltune in the job's Python. `announced`: sentences that are said before the
    job starts.
    """

    inside = False
    announced: Sequence[str] = ()

    def intent(self) -> Iterator[str | Table]:
        """What would be enforced, for `dltune run --dry-run`."""
        return iter(())

    def command(self, given: Sequence[str]) -> Sequence[str]:
        """The command to start. Raises UsageError where it cannot be made."""
        return given

    def environment(self, base: Mapping[str, str], folder: Path) -> Mapping[str, str]:
        """Variables to set beside those of `base`, which has those of the sections after this one.
        The job may write to `folder` while it runs. Raises DltuneError."""
        return {}

    def beside(self, pid: int) -> contextlib.AbstractContextManager[None]:
        """What accompanies the job, whose first process is `pid`."""
        return contextlib.nullcontext()

    def answer(self, python: messages.Python) -> Mapping[str, object]:
        """The reply to an interpreter of the job that starts. Raises UsageError when the job is
        another than planned for."""
        return {}

    def greet(self, process: Process) -> Sequence[str]:
        """Orders for a plugin that has just come, after its cores and pools."""
        return ()

    def look(self, job: Job) -> None:
        """At the job, some times a second. Raises DltuneError."""

    def hear(self, job: Job, event: Event) -> None:
        """A message of the job. Raises DltuneError when the section cannot be in force."""

    def ended(self, exit_code: int) -> Outcome | None:
        """Once the job has ended. Raises DltuneError when the section was not in force in it."""
        return None

    def cause(self) -> str | None:
        """Why the job failed, where this section knows."""
        return None
