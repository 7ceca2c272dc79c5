"""The ranks' models under a plan for their buckets, and what came of it in each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dltune.base.errors import DltuneError, JobFailed, UsageError
from dltune.job import protocol
from dltune.job.launch import Event, Job
from dltune.job.rank_layout import are_unheard
from dltune.plan.planner import Enforcement, Outcome, Run
from dltune.systems.ranks.buckets.section import Buckets
from dltune.systems.ranks.buckets.show import BucketsOutcome, Filled, intent, sentences
from dltune.systems.ranks.extension import BUCKETS


class EnforcedBuckets(Enforcement):
    """The section on buckets in one job."""

    inside = True

    def __init__(self, section: Buckets, run: Run) -> None:
        self.section = section
        self._run = run
        self._planned = [model for model in section.models if model.limits]
        # by process and gradients, the newest
        self._heard: dict[tuple[int, int], protocol.Buckets] = {}
        self._left: dict[str, None] = {}
        run.changes.append(
            lambda pid: "with its buckets" if any(pid == one for one, _ in self._heard) else ""
        )

    def intent(self) -> Iterator[str]:
        return intent(self.section)

    def answer(self, python: protocol.Python) -> Mapping[str, object]:
        """Without buckets where other ranks are not under this dltune: all must have the same."""
        if are_unheard(python.environment, self._run.environment):
            self._left.setdefault(
                "the buckets are unchanged, because ranks on other nodes do not run under this "
                "dltune; start one dltune per rank: torchrun ... --no-python dltune run ... python"
            )
            return {}
        models = [
            {"gradients": sorted(model.gradients), "limits": model.limits}
            for model in self.section.models
        ]
        return {"adapters": [BUCKETS.under({"models": models})]}

    def hear(self, job: Job, event: Event) -> None:
        message = event.message
        if isinstance(message, protocol.Buckets):
            if message.left:
                what = f"the buckets of a model with {message.gradients} gradients are unchanged"
                self._left.setdefault(f"rank {message.rank}: {what}: {message.left}")
            else:
                self._heard[message.pid, message.gradients] = message

    def ended(self, exit_code: int) -> Outcome:
        """Raises DltuneError when no model of the job got its buckets."""
        if self._planned and not self._heard and not self._run.partial:
            raise self._why_nothing(exit_code)
        planned = {(len(model.gradients), model.planned) for model in self._planned}
        ranks = tuple(
            Filled(
                one.rank,
                one.pid,
                one.gradients,
                tuple(one.buckets),
                (one.gradients, tuple(one.buckets)) in planned,
            )
            for one in sorted(self._heard.values(), key=lambda one: one.rank)
        )
        outcome = BucketsOutcome(ranks, tuple(self._left))
        return Outcome(outcome, [*sentences(outcome)])

    def _why_nothing(self, exit_code: int) -> DltuneError:
        message = "; ".join(self._left) or (
            "no process of the job created a DistributedDataParallel model"
        )
        if exit_code:
            message += f" (the job ended with exit code {exit_code})"
            return JobFailed(message, exit_code, remedy=None)
        return UsageError(
            f"{message}, so the plan had no effect",
            remedy="profile the job again and make a new plan, or pass --partial to run the job "
            "without the parts that do not apply",
        )
