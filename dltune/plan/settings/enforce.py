"""The settings around the ops in one job: messages to its processes, and their replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dltune.base.errors import DltuneError, JobFailed, UsageError
from dltune.job import protocol
from dltune.job.failures import Sightings, why_no_step
from dltune.job.launch import Event, Job, Process
from dltune.job.protocol import machine_lines
from dltune.job.rank_layout import Shares
from dltune.plan.plan import is_graph_independent
from dltune.plan.planner import Enforcement, Outcome, Run
from dltune.plan.settings.choices import Applied
from dltune.plan.settings.show import Acted, announced, sentences
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Uniform
from dltune.system.proc.process import mappings


class Settings:
    """Sends the settings to the processes of one job, and receives whether they are in force.

    `faults`: settings that turned out not to be in force, a sentence each; `steps`: the most steps
    in an execution of the step's graph; `environments`: variables as they were in each
    process once it had imported TensorFlow, by pid; `acted`: the newest message of each hook, by
    pid and setting.
    """

    def __init__(
        self,
        applied: Applied,
        machine: Machine,
        say: Callable[[str], None] = lambda _: None,
        watch: Sequence[str] = (),
        shares: Callable[[], Shares] | None = None,
    ) -> None:
        """`watch`: variables that are requested in any case. `shares`: the ranks' parts of the
        cores, where something other than these settings can decide them."""
        self.applied = applied
        self.faults: list[str] = []
        self.steps = 1
        self.environments: dict[int, dict[str, str]] = {}
        self._watch = watch
        self._seen = Sightings()
        self._say = say
        own = Shares(machine)
        self._shares = shares or (lambda: own)
        self.acted: dict[tuple[int, str], protocol.Setting] = {}

    def answer(self, python: protocol.Python) -> dict[str, object]:
        """Return the reply to an interpreter's start: the settings, and the plugin if it has
        threads to set. Other parts in force in the job come before."""
        means = self.applied.means
        reply: dict[str, object] = {"plugin": means.uniform is not None}
        if not self.applied.choices and not self._watch:
            return reply
        reply |= {
            "settings": dict(means.hooks),
            "environment": sorted({*means.environment, *means.joined, *self._watch}),
        }
        if means.cpus:
            reply["cpus"] = list(means.cpus)
        if means.shared:
            reply |= self._shares().answer(python)
        return reply

    def greet(self, process: Process) -> list[str]:
        """Return the first orders of a plugin that is there for the settings alone."""
        machine, rank = self._shares().of(process.pid)
        return machine_lines(machine, self.pools(machine, rank))

    def pools(self, machine: Machine, rank: int | None) -> Uniform:
        """Return TensorFlow's own pools, where they are among the settings; a rank has no more
        threads than its part of the machine has cores."""
        uniform = self.applied.means.uniform
        assert uniform is not None
        intra = uniform.intra if rank is None else min(uniform.intra, len(machine.cores))
        return Uniform(intra, uniform.inter)

    def hear(self, event: Event) -> None:
        """Raise a DltuneError when a thread setting cannot reach the job."""
        message = event.message
        self._seen.add(message)
        if isinstance(message, protocol.Setting):
            self.acted[message.pid, message.setting] = message
            self.steps = max(self.steps, message.steps)
        elif isinstance(message, protocol.Environment):
            self.environments[message.pid] = message.variables
            self._check(message)
        elif isinstance(message, protocol.Failed) and self.applied.means.uniform:
            raise why_no_step(self._seen, None)

    def outcome(self, exit_code: int | None) -> list[Acted]:
        """Return the hooks' results, once the job has ended; for each in the process that did most.

        Raises a DltuneError when no process of the job came as far as a framework.
        """
        if not self.environments and self.applied.choices:
            raise self._why_nothing(exit_code)
        best: dict[str, protocol.Setting] = {}
        for message in self.acted.values():
            known = best.setdefault(message.setting, message)
            if message.count > known.count:
                best[message.setting] = message
        return [
            Acted(told.pid, told.setting, told.value, told.did, told.count, tuple(told.left))
            for _, told in sorted(best.items())
        ]

    def _check(self, told: protocol.Environment) -> None:
        """Check, once a framework is imported, that the process's earlier settings are in force."""
        means = self.applied.means
        for name, value in means.environment.items():
            found = told.variables.get(name)
            if found != value:
                now = "is not set" if found is None else f"is {found}"
                self._fault(f"{name} {now} in pid {told.pid}, not {value}: the script sets it")
        for name, parts in means.joined.items():
            missing = [part for part in parts if part not in told.variables.get(name, "")]
            if missing:
                self._fault(f"{', '.join(missing)} is missing from {name} in pid {told.pid}")
        for library in means.preload:
            if not mapped(told.pid, library):
                self._fault(
                    f"{library} is not loaded in pid {told.pid}: the job cleared LD_PRELOAD"
                )

    def _fault(self, sentence: str) -> None:
        """Report once: a job can import one framework and then another."""
        if sentence not in self.faults:
            self.faults.append(sentence)
            self._say(f"not in effect: {sentence}")

    def _why_nothing(self, exit_code: int | None) -> DltuneError:
        error = why_no_step(self._seen, exit_code)
        if self._seen.pythons:
            message = (
                "no process of the job imported TensorFlow or PyTorch, so the settings changed "
                "nothing"
            )
            return JobFailed(message, exit_code) if exit_code else UsageError(message, remedy=None)
        return error


class EnforcedSettings(Enforcement):
    """The section on settings in one job."""

    def __init__(self, applied: Applied, run: Run) -> None:
        self._applied = applied
        self._settings = Settings(applied, run.machine, run.say, shares=lambda: run.shares)
        self.inside = bool(applied.choices)
        self.announced = list(announced(applied))
        if applied.means.uniform:
            run.pools = self._settings.pools
        if is_graph_independent(run.plan):
            run.changes.append(lambda _: "under its settings")

    def command(self, given: Sequence[str]) -> Sequence[str]:
        return self._applied.command(given)

    def environment(self, base: Mapping[str, str], folder: Path) -> Mapping[str, str]:
        return self._applied.environment(base)

    def answer(self, python: protocol.Python) -> Mapping[str, object]:
        return self._settings.answer(python)

    def hear(self, job: Job, event: Event) -> None:
        self._settings.hear(event)

    def ended(self, exit_code: int) -> Outcome:
        acted = self._settings.outcome(exit_code)
        document = {
            "applied": self._applied.choices,
            "left": self._applied.left,
            "acted": acted,
            "not_in_force": self._settings.faults,
        }
        return Outcome(document, [s for hook in acted for s in sentences(hook)])


def mapped(pid: int, library: Path) -> bool:
    """Return True if a file is mapped into a living process."""
    path = str(library.resolve())
    try:
        return any(mapping.path == path for mapping in mappings(pid))
    except OSError:  # it has ended already, and can no longer be checked
        return True
