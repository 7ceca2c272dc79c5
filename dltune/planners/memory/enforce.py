"""The order of a step's nodes as planned in each process of a job, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dltune.documents.sections.memory import Memory
from dltune.errors import UsageError
from dltune.job import messages
from dltune.job.diagnosis import crash_of
from dltune.job.launch import Event, Job, Process
from dltune.job.orders import escaped, sampled_lines
from dltune.planners.attachment import Attachment
from dltune.planners.enforcement import Enforcement, Outcome, Run
from dltune.planners.memory.show import Kept, MemoryOutcome, intent, sentences

# as the plugin calls what runs again (rewrite.h)
AGAIN = "/dltune_again_"


@dataclass
class _Process:
    """`graphs`: the plan's, by number; it may be traced several times."""

    graphs: dict[int, messages.Graph] = field(default_factory=dict)
    steps: int = 0
    peak: int | None = None
    at: str = ""


class EnforcedMemory(Enforcement):
    """The section on memory in one job."""

    inside = True

    def __init__(self, section: Memory, run: Run) -> None:
        self.section = section
        self._run = run
        # sections that order the ops of the same graph have them recorded too
        self._records = "threads" not in run.plan.sections
        self._attachment = Attachment()
        self._processes: dict[int, _Process] = {}
        if run.pools is None:
            run.pools = lambda *_: None

    def intent(self) -> Iterator[str]:
        return intent(self.section)

    def greet(self, process: Process) -> Sequence[str]:
        self._attachment.greet(process)
        lines = order_lines(self.section)
        if self._records:
            lines += sampled_lines([self.section.signature])
        return lines

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
        if isinstance(event.message, messages.Execution):
            process = self._processes.get(pid)
            if process and event.message.graph in process.graphs:
                _add(process, event.message)
            return
        message = event.message
        self._attachment.seen.records[pid].add(message)
        if isinstance(message, messages.Graph) and message.signature == self.section.signature:
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
                exit_code, f"no process of the job ran the planned graph {self.section.signature}"
            )
        kept = tuple(_kept(pid, process) for pid, process in self._processes.items())
        amiss = [text for text in complaints if self.section.signature in text]
        if any(one.again < self.section.again for one in kept):
            amiss = amiss or ["the job's graph was not rewritten"]
        if amiss and not self._run.partial and exit_code == 0:
            raise UsageError(
                "; ".join(amiss),
                remedy="profile the job as it is now and plan again, or pass --partial to let it "
                "run as it is",
            )
        outcome = MemoryOutcome(kept, tuple(complaints))
        return Outcome(outcome, list(sentences(outcome, self.section)))


def order_lines(section: Memory) -> list[str]:
    """The section as the plugin reads it, and that bytes be counted."""
    names = [escaped(name) for name in section.nodes]
    signature = escaped(section.signature)
    return ["count\t1", *(f"run\t{signature}\t{names[place]}" for place in section.order)]


def _add(process: _Process, execution: messages.Execution) -> None:
    process.steps += 1
    if process.peak is None or execution.peak > process.peak:
        process.peak = execution.peak
    if execution.levels:
        most = max(range(len(execution.levels)), key=execution.levels.__getitem__)
        graph = process.graphs[execution.graph]
        process.at = graph.nodes[execution.events[most][0]].name


def _kept(pid: int, process: _Process) -> Kept:
    again = max(
        sum(AGAIN in node.name for node in graph.nodes) for graph in process.graphs.values()
    )
    return Kept(pid, again, process.steps, process.peak, process.at)
