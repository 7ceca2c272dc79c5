"""A section of a plan in force on one job: its demands on a run.

The sections of a plan are composed in one order (`registry.composed`). Each finds in `Run` the
decisions of the sections before it, and leaves there the facts that later sections need.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dltune.base.formatting import Table
from dltune.job import protocol
from dltune.job.launch import Event, Job, Process
from dltune.job.rank_layout import Shares
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Plan, Uniform


@dataclass
class Run:
    """One job that is to run under a plan.

    `environment`: the environment of dltune itself. `partial`: parts that do not fit are left out,
    and reported by `say`. `shares`: each rank's part of the cores. `pools`: the framework's own
    pools of threads in a process, by its part of the machine and its rank (gives None: they are
    left alone; is None: no section has a use for the plugin). `changes`: by what of itself the plan
    has changed the graphs of a process since its profile, in a few words (empty: by nothing), by
    pid."""

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
        """Require the plugin, whatever becomes of the framework's pools."""
        if self.pools is None:
            self.pools = lambda *_: None

    def changed(self, pid: int) -> str:
        """Return the part of the plan that has changed this process's graphs; empty: none."""
        return next(filter(None, (change(pid) for change in reversed(self.changes))), "")


@dataclass(frozen=True)
class Outcome:
    """Result of a section in a job that has ended. `document`: for `dltune run --json`.
    `sentences`: for users."""

    document: Any
    sentences: Sequence[str]


class Enforcement:
    """Enforcement that does nothing to a job; a planner's subclass overrides its actions.

    `inside`: it needs dltune in the job's Python. `announced`: sentences that are printed before
    the job starts.
    """

    inside = False
    announced: Sequence[str] = ()

    def intent(self) -> Iterator[str | Table]:
        """Yield what would be enforced, for `dltune run --dry-run`."""
        return iter(())

    def command(self, given: Sequence[str]) -> Sequence[str]:
        """Return the command to start. Raises UsageError if it cannot be made."""
        return given

    def environment(self, base: Mapping[str, str], folder: Path) -> Mapping[str, str]:
        """Return variables to set in addition to `base`, which has the variables of later sections.
        The job can write to `folder` while it runs. Raises DltuneError."""
        return {}

    def beside(self, pid: int) -> contextlib.AbstractContextManager[None]:
        """Return the context that accompanies the job, whose first process is `pid`."""
        return contextlib.nullcontext()

    def answer(self, python: protocol.Python) -> Mapping[str, object]:
        """Return the reply to an interpreter of the job that starts. Raises UsageError when the
        plan is for another job."""
        return {}

    def greet(self, process: Process) -> Sequence[str]:
        """Return orders for a plugin that has just connected, after its cores and pools."""
        return ()

    def look(self, job: Job) -> None:
        """Poll the job, a few times a second. Raises DltuneError."""

    def hear(self, job: Job, event: Event) -> None:
        """Handle a message of the job. Raises DltuneError when the section cannot be in force."""

    def ended(self, exit_code: int) -> Outcome | None:
        """Return the outcome once the job has ended. Raises DltuneError when the section was not in
        force in it."""
        return None

    def cause(self) -> str | None:
        """Return why the job failed, if this section knows."""
        return None
