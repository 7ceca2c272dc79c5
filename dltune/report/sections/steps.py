"""The training steps: how long, and where the time of one goes."""

from __future__ import annotations

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
            shares = [(part, part.seconds / whole) for part in step.parts if part.seconds > 0]
            parts = [
                (f"{part.name} {part.seconds * 1e3:.3g} ms ({share:.0%})", share)
                for part, share in shares
            ]
            body += [tag("h4", "Wall time of ", name), divided(parts)]
        if step.lines:
            lines = [(line.where, f"{line.share:.0%}") for line in step.lines]
            heads = columns("line", ">share of samples")
            table = Table("lines of Python sampled between executions", heads, lines)
            body.append(html(table, f"{prefix}-lines-{step.signature}"))
    return joined(body)
