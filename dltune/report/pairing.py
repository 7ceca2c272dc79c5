"""Which documents of the page belong together."""

from __future__ import annotations

from dltune.documents import files
from dltune.documents.bench import Bench
from dltune.documents.plan import Plan
from dltune.documents.profile import Profile
from dltune.report.section import Context


def plan_of(profile: Profile, context: Context) -> Plan | None:
    """The plan that was made from the profile; else one for the same graphs."""
    plans = _plans(context)
    digest = files.digest(profile) if plans else ""
    graphs = {step.signature for step in profile.steps}
    made = (plan for plan in plans if plan.profile == digest)
    fitting = (plan for plan in plans if set(plan.signatures) == graphs)
    return next(made, None) or next(fitting, None)


def profiles_of(plan: Plan, context: Context) -> list[Profile]:
    """Profiles whose plan this is."""
    profiles = [d for d in context.of("dltune.profile") if isinstance(d, Profile)]
    return [profile for profile in profiles if plan_of(profile, context) is plan]


def bench_of(plan: Plan, context: Context) -> Bench | None:
    """The comparison that measured the plan."""
    benches = [d for d in context.of("dltune.bench") if isinstance(d, Bench)]
    digest = files.digest(plan) if benches else ""
    return next((bench for bench in benches if bench.plan == digest), None)


def plan_behind(bench: Bench, context: Context) -> Plan | None:
    """The plan that the comparison measured."""
    return next((plan for plan in _plans(context) if files.digest(plan) == bench.plan), None)


def _plans(context: Context) -> list[Plan]:
    return [d for d in context.of("dltune.plan") if isinstance(d, Plan)]
