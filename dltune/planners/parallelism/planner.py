"""The planner of parallelism, as the registry knows it."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.plan import Plan
from dltune.documents.sections import parallelism
from dltune.documents.sections.parallelism import Parallelism
from dltune.planners.enforcement import Enforcement, Run
from dltune.planners.planner import Planner


class ParallelismPlanner(Planner[Parallelism]):
    name = "parallelism"
    summary = "Over which devices each operator of a network is divided."
    section = Parallelism

    def faults(self, section: Parallelism, plan: Plan) -> Iterator[str]:
        return parallelism.faults(section)

    def enforce(self, section: Parallelism, run: Run) -> Enforcement:
        from dltune.planners.parallelism.enforce import Ranks

        return Ranks(section, run)


PLANNER = ParallelismPlanner()
