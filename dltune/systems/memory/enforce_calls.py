"""Results that a PyTorch job gives up as planned, and the effect on the job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from dltune.base.errors import UsageError
from dltune.extensions import Hook
from dltune.frameworks.pytorch import INJECTED as TORCH
from dltune.job import protocol
from dltune.job.failures import Sightings, crash_of, why_no_step
from dltune.job.launch import Event, Job
from dltune.plan.planner import Enforcement, Outcome, Run
from dltune.systems.memory.section import Memory
from dltune.systems.memory.show import (
    Kept,
    MemoryOutcome,
    intent,
    sentences,
)

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
