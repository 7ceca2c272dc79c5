"""A plan: what each of its sections decided, as its planner shows it."""

from __future__ import annotations

from dltune import views
from dltune.documents.plan import Plan
from dltune.documents.profile import Profile
from dltune.errors import DltuneError
from dltune.planners.plan import in_order, load
from dltune.planners.registry import planner
from dltune.report.charts.course import course
from dltune.report.charts.forest import forest
from dltune.report.charts.tiles import tiles
from dltune.report.markup import Markup, joined, tag
from dltune.report.pairing import bench_of, profiles_of
from dltune.report.section import Context, Loaded, Section, Shown
from dltune.report.sections.schedules import schedule
from dltune.report.table import html
from dltune.tables import Course, Table, Tiles
from dltune.views import Headline

__all__ = ["load", "show"]

ROWS = 500


def show(loaded: Loaded, context: Context) -> Shown:
    plan = loaded.document
    assert isinstance(plan, Plan)
    bench = bench_of(plan, context)
    sections: list[Section] = []
    headlines: list[Headline] = []
    remarks: list[str] = []
    documents = [one.document for one in context.documents]
    for name, section in in_order(plan):
        shown = planner(name).show(section, plan, [bench] if bench else [])
        headlines += shown.headlines
        for part in shown.sections:
            identifier = f"{loaded.prefix}-{name}-{part.name}"
            sections.append(Section(identifier, part.title, _body(part, identifier)))
        try:
            timeline = planner(name).schedule(section, plan, documents)
        except DltuneError as error:
            remarks.append(f"No timeline of {name}: {error}.")
        else:
            if timeline:
                identifier = f"{loaded.prefix}-{name}-schedule"
                body = schedule(timeline, f"{identifier}-drawn")
                sections.append(Section(identifier, "Device schedule", body))
    if context.of(Profile) and plan.signatures and not profiles_of(plan, context):
        remarks.append("This plan was made for graphs that are not in the profiles on this page.")
    return Shown(
        title=f"Plan {loaded.path.name}",
        head=[
            ("planned for", f"{plan.cores} cores: {plan.machine_name}"),
            *([(plan.framework.name, plan.framework.version)] if plan.framework else []),
            ("made", f"{plan.created}, dltune {plan.dltune}"),
            *([("profile", plan.profile[:16])] if plan.profile else []),
        ],
        sections=sections,
        headlines=headlines,
        remarks=remarks,
    )


def _body(part: views.Section, identifier: str) -> Markup:
    drawn = []
    for number, one in enumerate(part.body):
        if isinstance(one, Table):
            drawn.append(html(one, f"{identifier}-table{number}", ROWS))
        elif isinstance(one, str):
            drawn.append(tag("p", one))
        elif isinstance(one, Course):
            drawn.append(course(one))
        elif isinstance(one, Tiles):
            drawn.append(tiles(one))
        else:
            drawn.append(forest(one))
    return joined(drawn)
