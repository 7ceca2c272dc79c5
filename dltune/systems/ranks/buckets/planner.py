"""Planner of DDP's buckets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from dltune.plan.planner import Decision, Enforcement, Planner, Run
from dltune.schemas.plan import Plan
from dltune.systems.ranks.buckets.section import Buckets
from dltune.views import View


class BucketsPlanner(Planner[Buckets]):
    name = "buckets"
    summary = "Choose which gradients PyTorch's DistributedDataParallel sends together."
    example = "dltune plan buckets profile.json"
    section = Buckets
    after = ("settings",)

    def parameters(self) -> Sequence[click.Parameter]:
        return [click.Argument(["profile"], type=click.Path(path_type=Path))]

    def decide(self, existing: Plan | None, **parameters: Any) -> Decision[Buckets]:
        """PROFILE is a profile of the job's ranks (dltune profile -- torchrun ... train.py).

        Ranks send gradients in groups, called buckets, while the backward pass still computes other
        gradients. The plan contains the buckets with which a step is predicted to be fastest.
        `dltune run --plan` applies them to the job's model.
        """
        return _decide(**parameters)

    def changes_graphs(self, section: Buckets) -> bool:
        return any(model.limits for model in section.models)

    def difference(self, before: Buckets | None, after: Buckets | None, *, graphs: bool) -> str:
        """No other ops run in such graphs than those that ask for sums."""
        if graphs:
            return ""
        planned, other = (
            [model.limits for model in section.models]
            if section and self.changes_graphs(section)
            else []
            for section in (after, before)
        )
        if planned == other:
            return ""
        return "with other buckets" if planned else "without the plan's buckets"

    def enforce(self, section: Buckets, run: Run) -> Enforcement:
        from dltune.systems.ranks.buckets.enforce import EnforcedBuckets

        return EnforcedBuckets(section, run)

    def show(self, section: Buckets, plan: Plan, beside: Sequence[msgspec.Struct]) -> View:
        from dltune.systems.ranks.buckets.show import shown

        return shown(section)


PLANNER = BucketsPlanner()


def _decide(profile: Path) -> Decision[Buckets]:
    from dltune.schemas import profile as documents
    from dltune.systems.ranks.buckets import show
    from dltune.systems.ranks.buckets.decide import decide

    found = documents.load(profile)
    decided = decide(found)
    return Decision(
        decided.section,
        found.machine,
        found,
        choice=show.choice(decided.section),
        remarks=decided.reasons,
        shown=show.shown(decided.section),
    )
