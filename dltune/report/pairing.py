"""Functions that find the documents of the page that belong together."""

from __future__ import annotations

from dltune.base import documents
from dltune.plan.plan import with_sections
from dltune.schemas.bench import Bench
from dltune.schemas.plan import Plan, first
from dltune.schemas.profile import Profile
from dltune.views import Context


def plan_of(profile: Profile, context: Context) -> Plan | None:
    """The plan that was made from the profile; else one for the same graphs."""
    plans = context.of(Plan)
    digest = documents.digest(profile) if plans else ""
    graphs = {step.signature for step in profile.steps}
    made = (plan for plan in plans if plan.profile == digest)
    fitting = (plan for plan in plans if set(plan.signatures) == graphs)
    return next(made, None) or next(fitting, None)


def profiles_of(plan: Plan, context: Context) -> list[Profile]:
    """Profiles whose plan this is."""
    return [found for found in context.of(Profile) if plan_of(found, context) is plan]


def bench_of(plan: Plan, context: Context) -> Bench | None:
    """Return the comparison that measured the plan, else the plan before settings were added."""
    benches = context.of(Bench)
    digests = _digests(plan) if benches else ()
    return next((bench for d in digests for bench in benches if bench.plan == d), None)


def plan_behind(bench: Bench, context: Context) -> Plan | None:
    """The plan that the comparison measured, maybe before settings were put into it."""
    return next((plan for plan in context.of(Plan) if bench.plan in _digests(plan)), None)


def _digests(plan: Plan) -> tuple[str, ...]:
    """Return the digests of the plan, and of its state before `dltune tune --into`, in the first
    schema too."""
    before = with_sections(plan, settings=None)
    return documents.digest(plan), documents.digest(before), documents.digest_of(first(before))
