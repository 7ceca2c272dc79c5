"""A plan on one job: its sections composed, the job started, what came of each."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dltune.base.formatting import Table
from dltune.job import protocol
from dltune.job.launch import Job, Process
from dltune.job.protocol import machine_lines
from dltune.job.rank_layout import Shares
from dltune.plan.enforcement import Enforcement, Outcome, Run
from dltune.plan.plan import in_order, require_sections
from dltune.plan.registry import planner
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Plan

LOOK_SECONDS = 0.5  # between two looks at a job that says nothing


class Composition:
    """The sections of one plan in force on one job, in the order in which they take effect."""

    def __init__(
        self,
        plan: Plan,
        machine: Machine,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        partial: bool,
        say: Callable[[str], None],
    ) -> None:
        """With `partial`, what still applies of a plan that does not fit; `say` is told what does
        not. Raises UsageError when a section does not fit, or there is none."""
        require_sections(plan)
        self._run = Run(plan, machine, command, environment, partial, say, Shares(machine))
        self._sections: dict[str, Enforcement] = {
            name: planner(name).enforce(section, self._run) for name, section in in_order(plan)
        }
        self.cause: str | None = None

    def announced(self) -> list[str]:
        """What is said before the job starts."""
        return [sentence for one in self._sections.values() for sentence in one.announced]

    def intent(self) -> Iterator[str | Table]:
        """What would be enforced."""
        for one in self._sections.values():
            yield from one.intent()

    @contextlib.contextmanager
    def started(self) -> Iterator[Job]:
        """The job, which is ended with the block if it still runs. Raises DltuneError when the
        command or the environment cannot be made, or the job cannot be started."""
        sections = list(self._sections.values())
        command = self._run.command
        for one in sections:
            command = one.command(command)
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dltune-")))
            environment: dict[str, str] = {}
            for one in reversed(sections):
                base = {**self._run.environment, **environment}
                environment |= one.environment(base, folder)
            if not any(one.inside for one in sections):  # nothing to do in the job's Python
                environment["DLTUNE_DISABLE"] = "1"
            job = stack.enter_context(
                Job(command, answer=self.answer, greet=self.greet, environment=environment)
            )
            for one in sections:
                stack.enter_context(one.beside(job.pid))
            yield job

    def watch(self, job: Job) -> dict[str, Outcome]:
        """Until the job ends; by the planners' names, what came of their sections. Raises
        DltuneError when one was not in force."""
        sections = list(self._sections.values())
        for event in job.events(LOOK_SECONDS):
            for one in sections:
                one.look(job)
            if event is None:
                continue
            if isinstance(event.message, protocol.Building):
                self._run.say(event.message.phase)
            for one in sections:
                one.hear(job, event)
        code = job.exit_code
        assert code is not None  # it has ended
        # the nearer to the ops, the more a section knows of why nothing was enforced
        outcomes = {name: one.ended(code) for name, one in reversed(self._sections.items())}
        self.cause = next(filter(None, (one.cause() for one in sections)), None)
        return {name: found for name in self._sections if (found := outcomes[name]) is not None}

    def answer(self, python: protocol.Python) -> dict[str, object]:
        """The reply to an interpreter of the job that starts. Raises UsageError."""
        reply: dict[str, Any] = {}
        adapters: list[Any] = []
        for one in self._sections.values():
            theirs: Mapping[str, Any] = one.answer(python)
            reply |= theirs
            adapters += theirs.get("adapters", ())
        if adapters:
            reply["adapters"] = adapters
        return {**reply, "plugin": self._run.pools is not None}

    def greet(self, process: Process) -> list[str]:
        """First orders of a plugin: its cores and pools, then what each section orders."""
        machine, rank = self._run.shares.of(process.pid)
        pools = self._run.pools(machine, rank) if self._run.pools else None
        orders = (line for one in self._sections.values() for line in one.greet(process))
        return [*machine_lines(machine, pools), *orders]
