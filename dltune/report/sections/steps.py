"""The training steps: how long, and where the time of one goes."""

from __future__ import annotations

from dltune.analysis.why import attack
from dltune.documents.profile import Profile
from dltune.report.charts.marks import divided
from dltune.report.markup import Markup, joined, short, tag
from dltune.report.table import html
from dltune.tables import Table, columns


def steps(profile: Profile, prefix: str) -> Markup:
    rows = [
        (
            step.name or step.signature,
            f"{step.wall.median * 1e3:.1f}",
            f"{step.wall.spread:.0%}",
            f"{step.span.median * 1e3:.1f}",
            f"{sum(node.repeats for node in step.nodes):.0f}",
            str(step.executions),
            f"{step.share:.1%}",
        )
        for step in profile.steps
    ]
    heads = columns(
        *("step", ">wall ms", ">spread", ">first op to last ms", ">ops"),
        *(">executions", ">of all op time"),
    )
    body: list[Markup] = [html(Table("steps of the job", heads, rows), f"{prefix}-steps-table")]
    for step in profile.steps:
        name = short(step.name or step.signature)
        whole = sum(part.seconds for part in step.parts)
        if whole > 0:
            parts = [
                (
                    f"{p.name} {p.seconds * 1e3:.3g} ms ({p.seconds / whole:.0%})",
                    p.seconds / whole,
                )
                for p in step.parts
                if p.seconds > 0
            ]
            body.append(tag("h4", "Wall time of ", name))
            body.append(divided(parts))
        if advice := attack(step):
            body.append(tag("p", advice[0].upper() + advice[1:] + "."))
        if step.lines:
            lines = [(line.where, f"{line.share:.0%}") for line in step.lines]
            heads = columns("line", ">share of looks")
            table = Table("lines of Python seen between executions", heads, lines)
            body.append(html(table, f"{prefix}-lines-{step.signature}"))
    return joined(body)
