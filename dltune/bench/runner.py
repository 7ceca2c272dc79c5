"""One job under one setting, which it has from its first step on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from dltune.base.errors import DltuneError, UsageError
from dltune.bench.settings import Setting, on_part
from dltune.job import protocol
from dltune.job.failures import why_no_step
from dltune.job.launch import Event, Process
from dltune.job.protocol import Orders, machine_lines
from dltune.job.rank_layout import Shares
from dltune.job.record import Record
from dltune.plan.plan import for_any_graph, observers
from dltune.plan.settings.enforce import Settings
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Plan
from dltune.schemas.settings import SettingsPlan
from dltune.turns.step_barrier import StepBarrier, Taken
from dltune.turns.steps import StepGraphs


class Runner(StepBarrier):
    """The plan's `signatures` are the job's step graphs where it runs as planned.

    Settings around the ops change the graphs: a job without them finds its steps by itself, and so
    does one whose plan names none, or is for any graph. Of several ranks the first that has found
    them leads; the others wait for it in their collectives, so it alone waits at the step barrier.
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
        as_planned = not chosen or (setting.name == "plan" and not for_any_graph(plan))
        known = plan.signatures if as_planned else ()
        sections = tuple(observers(plan, in_force=setting.name == "plan").values())

        def hear(record: Record, execution: protocol.Execution) -> None:
            for section in sections:
                section.hear(record, execution)
            heard(record, execution)

        super().__init__(known, hear)
        self.setting = setting
        self._sections = sections
        self.settings = Settings(setting.applied, machine)
        self._plan = plan
        self._shares = Shares(machine)
        self._processes: dict[int, tuple[Process, Setting]] = {}

    def answer(self, python: protocol.Python) -> dict[str, object]:
        """To an interpreter of the job: the settings around the ops, the CPUs it is confined to;
        for a rank, its share. Raises UsageError when the job's cluster is not the plan's."""
        for section in self._sections:
            section.require(python)
        own: dict[str, object] = {}
        if self.setting.cpus:
            own = {"cpus": list(self.setting.cpus)}
        elif self.setting.shared:
            own = self._shares.answer(python)
        return {**self.settings.answer(python), "plugin": True, **own}

    def greet(self, process: Process) -> list[str]:
        """First orders of a process: the setting, and to stop before the first step, or to report
        every graph until the steps are found."""
        self.sightings.records[process.pid] = Record(process.hello)
        part, rank = self._shares.of(process.pid)
        setting = self.setting if rank is None else on_part(self.setting, self._plan, part)
        self._processes[process.pid] = process, setting
        uniform = self.setting.applied.means.uniform
        first = [*(self.settings.greet(process) if uniform else machine_lines(part))]
        first += [line for section in self._sections for line in section.lines()]
        if self._finder is None:
            return [*first, *setting.lines()]
        found = self.steps
        orders = self._orders(setting, found, leads=False) if found else Orders(1, discover=True)
        return [*first, *setting.pools(), *orders.lines()]

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

    def _hear(self, event: Event) -> None:
        self.settings.hear(event)
        super()._hear(event)

    def _stop_at(self, found: StepGraphs) -> None:
        for pid, (process, setting) in self._processes.items():
            process.order(self._orders(setting, found, leads=pid == found.pid).lines())

    def _orders(self, setting: Setting, found: StepGraphs, *, leads: bool) -> Orders:
        return dataclasses.replace(
            setting.orders, version=2, targets=found.signatures, barrier=leads
        )

    def why_not(self) -> DltuneError:
        """The error with the reason why the job has not come to a step of the plan."""
        graphs = [g for record in self.sightings.records.values() for g in record.graphs.values()]
        elsewhere = any(g.xla or "GPU" in g.device or "TPU" in g.device for g in graphs)
        finding = self._finder is not None
        if self.exit_code not in (0, None) or elsewhere or not graphs or finding:
            return why_no_step(self.sightings, self.exit_code)
        largest = sorted(graphs, key=lambda g: -len(g.nodes))
        names = ", ".join(dict.fromkeys(g.name or g.signature for g in largest[:3]))
        return UsageError(
            f"the plan was made for other graphs than those that the job runs ({names})",
            remedy="pass the plan of this command, or profile and plan it again",
        )
