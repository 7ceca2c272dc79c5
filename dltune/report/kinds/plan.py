"""A plan: what each of its sections decided, as its planner shows it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from dltune.base.errors import DltuneError
from dltune.base.formatting import Table
from dltune.plan.plan import ordered_sections
from dltune.plan.planner import load_planner
from dltune.report.page import bench_of, profiles_of
from dltune.schemas.plan import Plan
from dltune.schemas.profile import Profile
from dltune.views import Context, Headline, Piece, Section, View, on_terminal

TOP = 12  # rows of a table on a terminal
ROWS = 500  # and on a page


def view(plan: Plan, context: Context) -> View:
    bench = bench_of(plan, context)
    top = context.top or TOP
    build = f", {plan.framework.name} {plan.framework.version}" if plan.framework else ""
    first = f"plan for {plan.cores} cores: {plan.machine_name}{build}"
    sections = [Section("plan", "", on_terminal(first))]
    headlines: list[Headline] = []
    remarks: list[str] = []
    documents = [one.document for one in context.documents]
    for name, section in ordered_sections(plan):
        shown = load_planner(name).show(section, plan, [bench] if bench else [])
        headlines += shown.headlines
        lines = [line for one in shown.headlines for line in ("", f"{name}: {one.sentence}")]
        sections.append(Section(name, "", on_terminal(*lines)))
        for part in shown.sections:
            body = [*on_terminal(""), *_limited(part, top)]
            sections.append(Section(f"{name}-{part.name}", part.title, body))
        if not documents:  # on a terminal
            continue
        try:
            schedule = load_planner(name).schedule(section, plan, documents)
        except DltuneError as error:
            remarks.append(f"No timeline of {name}: {error}.")
        else:
            if schedule:
                sections.append(Section(f"{name}-schedule", "Device schedule", [schedule]))
    if context.of(Profile) and plan.signatures and not profiles_of(plan, context):
        remarks.append("This plan was made for graphs that are not in the profiles on this page.")
    return View(
        title="Plan",
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


def _limited(section: Section, top: int) -> Iterator[Piece]:
    for number, piece in enumerate(section.body):
        if isinstance(piece, Table):
            piece = replace(piece, most=top, most_on_page=ROWS, gap=number > 0)
        yield piece
