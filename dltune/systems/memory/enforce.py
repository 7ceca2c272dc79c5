"""The order of a step's nodes as planned in each process of a job, and what came of it.

Results that a PyTorch job gives up as planned, and the effect on the job.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.extensions import Hook
from dltune.frameworks.pytorch import INJECTED as TORCH
from dltune.job import protocol
from dltune.job.failures import Sightings, crash_of, why_no_step
from dltune.job.launch import Event, Job, Process
from dltune.job.protocol import escaped
from dltune.plan.planner import Attachment, Enforcement, Outcome, Run
from dltune.systems.memory.section import Memory
from dltune.systems.memory.show import (
    Kept,
    MemoryOutcome,
    intent,
    sentences,
)

# the plugin's name for nodes that run again (plugin/tensorflow/rewrite.cc)
AGAIN = "/dltune_again_"
# and for tensors that have come back
PREFETCH = "/dltune_prefetch_"


@dataclass
class _Process:
    """`graphs`: the plan's, by number; each can be traced several times."""

    graphs: dict[int, protocol.Graph] = field(default_factory=dict)
    steps: int = 0
    peak: int | None = None
    live: int = 0
    at: str = ""


class EnforcedMemory(Enforcement):
    """The section on memory in one job. Raises UsageError when there is no folder for the tensors
    that it offloads."""

    inside = True

    def __init__(self, section: Memory, run: Run) -> None:
        if section.folder and not os.access(section.folder, os.W_OK):
            raise UsageError(
                f"the plan offloads tensors to {section.folder}, which does not exist or is not "
                "writable",
                remedy="create the folder, or plan again with another --offload",
            )
        self.section = section
        self._run = run
        self.recorded = (section.signature,)
        self._attachment = Attachment()
        self._processes: dict[int, _Process] = {}
        run.needs_plugin()

    def intent(self) -> Iterator[str]:
        return intent(self.section)

    def greet(self, process: Process) -> Sequence[str]:
        self._attachment.greet(process)
        return order_lines(self.section)

    def look(self, job: Job) -> None:
        """Raises DltuneError when the job runs without the plan."""
        if not self._processes:
            self._attachment.look(job)

    def hear(self, job: Job, event: Event) -> None:
        """Raises DltuneError when the plan could not be enforced."""
        self._attachment.hear(event)
        if event.process is None:
            return
        pid = event.process.pid
        if isinstance(event.message, protocol.Execution):
            process = self._processes.get(pid)
            if process and event.message.graph in process.graphs:
                _add(process, event.message)
            return
        message = event.message
        self._attachment.seen.records[pid].add(message)
        if isinstance(message, protocol.Graph) and message.signature == self.section.signature:
            process = self._processes.setdefault(pid, _Process())
            process.graphs[message.id] = message

    def ended(self, exit_code: int) -> Outcome:
        """Raises DltuneError when no process ran the graph that was planned for."""
        seen = self._attachment.seen
        if crash := crash_of(seen, exit_code):
            raise crash
        complaints = dict.fromkeys(
            text for record in seen.records.values() for text in record.complaints
        )
        if not self._processes:
            raise self._attachment.why_nothing(
                exit_code,
                "no process of the job ran the graph that the plan is for, "
                f"{self.section.signature}",
            )
        kept = tuple(_kept(pid, process) for pid, process in self._processes.items())
        amiss = [text for text in complaints if self.section.signature in text]
        if any(
            one.again < self.section.again or one.offloaded < len(self.section.offloaded)
            for one in kept
        ):
            amiss = amiss or ["the job's graph was not rewritten"]
        if amiss and not self._run.partial and exit_code == 0:
            raise UsageError(
                "; ".join(amiss),
                remedy="profile the job again and make a new plan, or pass --partial to run the "
                "job without the parts that do not apply",
            )
        outcome = MemoryOutcome(kept, tuple(complaints))
        return Outcome(outcome, list(sentences(outcome, self.section)))


def order_lines(section: Memory) -> list[str]:
    """The section as the plugin reads it, and that bytes be counted."""
    names = [escaped(name) for name in section.nodes]
    signature = escaped(section.signature)
    lines = ["count\t1"]
    if section.folder:
        lines.append(f"folder\t{escaped(section.folder)}")
    moments = {
        field: _by([getattr(one, field) for one in section.offloaded])
        for field in ("out", "freed", "back")
    }
    # tensors that leave are known by the order in which they do
    number = {one: count for count, one in enumerate(itertools.chain(*moments["out"].values()))}
    for at, place in enumerate(section.order):
        for one in moments["freed"].get(at, ()):
            lines.append(f"offloaded\t{signature}\t{number[one]}")
        for one in moments["back"].get(at, ()):
            use = section.offloaded[one].use
            lines.append(f"prefetch\t{signature}\t{number[one]}\t{use}")
        lines.append(f"run\t{signature}\t{names[place]}")
        for one in moments["out"].get(at, ()):
            moved = section.offloaded[one]
            lines.append(f"offload\t{signature}\t{names[moved.place]}\t{moved.slot}\t{moved.freed}")
    return lines


def _by(moments: Sequence[int]) -> dict[int, list[int]]:
    """By moment the places in the list, the earliest first."""
    found: dict[int, list[int]] = {}
    for place in sorted(range(len(moments)), key=moments.__getitem__):
        found.setdefault(moments[place], []).append(place)
    return found


def _add(process: _Process, execution: protocol.Execution) -> None:
    process.steps += 1
    if process.peak is None or execution.peak > process.peak:
        process.peak, process.live = execution.peak, execution.live
    if execution.levels:
        most = max(range(len(execution.levels)), key=execution.levels.__getitem__)
        graph = process.graphs[execution.graph]
        process.at = graph.nodes[execution.events[most][0]].name


def _kept(pid: int, process: _Process) -> Kept:
    again, back = (
        max(sum(mark in node.name for node in graph.nodes) for graph in process.graphs.values())
        for mark in (AGAIN, PREFETCH)
    )
    return Kept(pid, again, back, process.steps, process.peak, process.live, process.at)


INJECTED = Path(__file__).resolve().parent / "inject"
RELIEF = Hook("_dltune_torch_relief", (str(INJECTED), str(TORCH)), ("torch",))


class EnforcedCalls(Enforcement):
    """The section on memory in one job of PyTorch's. Its plugin only counts bytes: where it cannot
    be built the plan is in force without."""

    inside = True

    def __init__(self, section: Memory, run: Run) -> None:
        self.section = section
        self._run = run
        self._seen = Sightings()
        self._heard: dict[int, protocol.GivenUp] = {}
        run.needs_plugin()

    def intent(self) -> Iterator[str]:
        return intent(self.section)

    def answer(self, python: protocol.Python) -> Mapping[str, object]:
        if self.section.compiled is not None:
            return {"adapters": [RELIEF.under({"budget": self.section.compiled})]}
        groups = [{"calls": one.calls, "reads": one.reads} for one in self.section.given_up]
        return {"adapters": [RELIEF.under({"forward": self.section.calls, "groups": groups})]}

    def hear(self, job: Job, event: Event) -> None:
        self._seen.add(event.message)
        if isinstance(event.message, protocol.GivenUp):
            self._heard[event.message.pid] = event.message

    def ended(self, exit_code: int) -> Outcome:
        """Raises DltuneError when no step of the job was as planned."""
        if crash := crash_of(self._seen, exit_code):
            raise crash
        if not self._heard:
            raise why_no_step(self._seen, exit_code)
        left = [one.left for one in self._heard.values() if one.left]
        left += [
            f"a step differs from the plan: {one.other}"
            for one in self._heard.values()
            if one.other
        ]
        planned = len(self.section.given_up) if self.section.compiled is None else 1
        done = [one for one in self._heard.values() if one.groups == planned]
        if not done and not self._run.partial and exit_code == 0:
            raise UsageError(
                "; ".join(left) or "no step of the job matched the plan",
                remedy="profile the job again and make a new plan, or pass --partial to run the "
                "job without the parts that do not apply",
            )
        kept = tuple(
            Kept(one.pid, self._again(one.groups), 0, one.steps, one.peak, None, "")
            for one in self._heard.values()
        )
        outcome = MemoryOutcome(kept, tuple(left))
        return Outcome(outcome, list(sentences(outcome, self.section)))

    def _again(self, groups: int) -> int:
        """Return how many results of the first ones are computed again; of a compiler, whether it
        has its budget."""
        if self.section.compiled is not None:
            return groups
        return sum(len(one.reads) - 1 for one in self.section.given_up[:groups])
