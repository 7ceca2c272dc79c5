"""One job under one setting, which it has from its first step on."""

from __future__ import annotations

from collections.abc import Callable

from dltune.bench.settings import Setting, on_part
from dltune.bench.turnstile import Turnstile
from dltune.documents.machine import Machine
from dltune.documents.plan import Plan
from dltune.errors import DltuneError, UsageError
from dltune.job import messages
from dltune.job.diagnosis import why_no_step
from dltune.job.launch import Process
from dltune.job.orders import machine_lines
from dltune.job.record import Record
from dltune.run.shares import Shares


class Runner(Turnstile):
    """The plan's `signatures` are the job's step graphs."""

    def __init__(
        self,
        setting: Setting,
        machine: Machine,
        plan: Plan,
        heard: Callable[[Record, messages.Execution], None] = lambda *_: None,
    ) -> None:
        """`heard` is told each execution of the process that leads."""
        super().__init__(plan.signatures, heard)
        self.setting = setting
        self._plan = plan
        self._shares = Shares(machine)

    def answer(self, python: messages.Python) -> dict[str, object]:
        """To an interpreter of the job: the CPUs it is confined to; for a rank, its share."""
        if self.setting.cpus:
            return {"cpus": list(self.setting.cpus)}
        return self._shares.answer(python) if self.setting.shared else {}

    def greet(self, process: Process) -> list[str]:
        """First orders of a process: the setting, and to stop before the first step."""
        self.seen.records[process.pid] = Record(process.hello)
        part, rank = self._shares.of(process.pid)
        setting = self.setting if rank is None else on_part(self.setting, self._plan, part)
        return [*machine_lines(part), *setting.lines()]

    @property
    def predicted(self) -> float | None:
        """Seconds of a step in the plan, which knows nothing of several ranks."""
        return None if self._shares else self.setting.predicted

    def why_not(self) -> DltuneError:
        """The error that tells why the job has not come to a step of the plan."""
        graphs = [g for record in self.seen.records.values() for g in record.graphs.values()]
        elsewhere = any(g.xla or "GPU" in g.device or "TPU" in g.device for g in graphs)
        if self.exit_code not in (0, None) or elsewhere or not graphs:
            return why_no_step(self.seen, self.exit_code)
        largest = sorted(graphs, key=lambda g: -len(g.nodes))
        names = ", ".join(dict.fromkeys(g.name or g.signature for g in largest[:3]))
        return UsageError(
            f"the job ran none of the graphs that the plan was made for (it ran {names})",
            remedy="profile and plan this very command, or give the plan that belongs to it",
        )
