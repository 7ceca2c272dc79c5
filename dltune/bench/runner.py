"""One job for each setting of a bench, and their start and end.

`Runner` is a job under one setting, and `compete` lets the jobs of all settings take turns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from dltune.base.errors import DltuneError, UsageError
from dltune.bench.contestants import Setting, on_part
from dltune.job import protocol
from dltune.job.launch import Process
from dltune.job.protocol import Orders, machine_lines
from dltune.job.rank_layout import Shares
from dltune.job.record import Record
from dltune.job.subprocesses import last_words
from dltune.plan.plan import is_graph_independent, observers
from dltune.plan.settings.enforce import Settings
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Plan
from dltune.schemas.settings import SettingsPlan
from dltune.turns.barrier import FOUND, SEEKING, StepBarrier, Taken
from dltune.turns.rounds import Rounds, RunningJobs
from dltune.turns.step_finder import StepGraphs


class Runner(StepBarrier):
    """One job under one setting, which it has from its first step on.

    The plan's `signatures` are the job's step graphs where it runs as planned.

    Settings around the ops change the graphs: a job without them finds its steps by itself, and so
    does one whose plan names none, or is for any graph.
    """

    def __init__(
        self,
        setting: Setting,
        machine: Machine,
        plan: Plan,
        heard: Callable[[Record, protocol.Execution], None] = lambda *_: None,
    ) -> None:
        """`heard` is called with each execution of the process that leads."""
        around = plan.of(SettingsPlan)
        chosen = around.chosen if around else ()
        as_planned = not chosen or (setting.name == "plan" and not is_graph_independent(plan))
        known = plan.signatures if as_planned else ()
        sections = tuple(observers(plan, in_force=setting.name == "plan").values())

        def hear(record: Record, execution: protocol.Execution) -> None:
            for section in sections:
                section.hear(record, execution)
            heard(record, execution)

        super().__init__(setting.name, Settings(setting.applied, machine), known, heard=hear)
        self.setting = setting
        self._sections = sections
        self._plan = plan
        self._shares = Shares(machine)
        self._settings: dict[int, Setting] = {}  # of each process

    def answer(self, python: protocol.Python) -> dict[str, object]:
        """Return the reply to an interpreter of the job: the settings around the ops, and the CPUs
        to which it is confined, or the share of a rank. Raises UsageError when the job's cluster is
        not the plan's."""
        for section in self._sections:
            section.require(python)
        own: dict[str, object] = {}
        if self.setting.cpus:
            own = {"cpus": list(self.setting.cpus)}
        elif self.setting.shared:
            own = self._shares.answer(python)
        return {**super().answer(python), **own}

    def greet(self, process: Process) -> list[str]:
        """Return the first orders of a process: to run under the setting, and to stop before the
        first step, or to report every graph until the steps are found."""
        part, rank = self._shares.of(process.pid)
        setting = self.setting if rank is None else on_part(self.setting, self._plan, part)
        self._settings[process.pid] = setting
        uniform = self.setting.applied.means.uniform
        first = super().greet(process)
        first += self.settings.greet(process) if uniform else machine_lines(part)
        first += [line for section in self._sections for line in section.lines()]
        if self._finder is None:
            return [*first, *setting.lines()]
        found = self.steps
        orders = self.standing_orders(process, found) if found else Orders(SEEKING, discover=True)
        return [*first, *setting.pools(), *orders.lines()]

    def standing_orders(self, process: Process, found: StepGraphs) -> Orders:
        return dataclasses.replace(
            self._settings[process.pid].orders,
            version=FOUND,
            targets=found.signatures,
            barrier=process.pid == found.pid,
        )

    def take(self, executions: int, idle: Callable[[], None] = lambda: None) -> Taken:
        """Take a turn as `StepBarrier.take` does; if an execution runs several steps, of these."""
        self._efficiencies()
        taken = super().take(executions, idle)
        taken = dataclasses.replace(taken, scheduling=self._efficiencies())
        several = self.settings.steps
        if several == 1:
            return taken
        return dataclasses.replace(
            taken,
            steps=tuple(seconds / several for seconds in taken.steps),
            per_step=taken.per_step and taken.per_step / several,
        )

    def _efficiencies(self) -> tuple[float, ...]:
        return tuple(each for section in self._sections for each in section.taken())

    @property
    def faults(self) -> Iterator[str]:
        """Yield the parts of its setting that the job did not adopt, sentences."""
        yield from self.settings.faults
        for section in self._sections:
            yield from section.faults(self.sightings.records.values())

    @property
    def predicted(self) -> float | None:
        """Seconds of a step in the plan, which knows nothing of several ranks."""
        return None if self._shares else self.setting.predicted

    def why_not(self) -> DltuneError:
        """The error with the reason why the job has not come to a step of the plan."""
        graphs = [g for record in self.sightings.records.values() for g in record.graphs.values()]
        elsewhere = any(g.xla or "GPU" in g.device or "TPU" in g.device for g in graphs)
        finding = self._finder is not None
        if self.exit_code not in (0, None) or elsewhere or not graphs or finding:
            return super().why_not()
        largest = sorted(graphs, key=lambda g: -len(g.nodes))
        names = ", ".join(dict.fromkeys(g.name or g.signature for g in largest[:3]))
        return UsageError(
            f"the plan was made for other graphs than those that the job runs ({names})",
            remedy="pass the plan of this command, or profile and plan it again",
        )


def compete(
    rounds: Rounds[Runner], command: Sequence[str], *, verbose: bool, say: Callable[[str], None]
) -> None:
    """Start the command once for each setting, take the rounds, end all jobs.

    The output of the jobs goes to stderr when `verbose`; else it is kept aside, and the last lines
    of a job that died are shown. Raises as `Rounds.run`, and UsageError when the command cannot be
    started.
    """
    with RunningJobs("dltune-bench-", verbose=verbose) as jobs:
        for runner in rounds.jobs:
            jobs.start(runner, command)
        try:
            rounds.run()
        except DltuneError:
            _say_last_words(rounds.jobs, say)
            raise
        if rounds.fault:
            _say_last_words(rounds.jobs, say)


def _say_last_words(runners: Sequence[Runner], say: Callable[[str], None]) -> None:
    for runner in runners:
        if not (runner.ended and runner.exit_code):
            continue
        if words := last_words(runner.log, f"the job under {runner.name}"):
            say(words)
