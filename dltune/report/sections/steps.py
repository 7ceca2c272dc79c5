"""The training steps: how long, and where the time of one goes."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from dltune.base.formatting import Table, columns
from dltune.report.charts.marks import divided
from dltune.report.markup import Markup, joined, short, tag
from dltune.schemas.profile import Profile, Step
from dltune.views import Picture, Piece, on_page


def steps(profile: Profile) -> Iterator[Piece]:
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
    yield from on_page(Table("steps of the job", heads, rows, name="steps-table"))
    for step in profile.steps:
        yield Picture(functools.partial(_parts, step))
        if step.lines:
            lines = [(line.where, f"{line.share:.0%}") for line in step.lines]
            title = "lines of Python sampled between executions"
            heads = columns("line", ">share of samples")
            yield from on_page(Table(title, heads, lines, name=f"lines-{step.signature}"))


def _parts(step: Step, _: str) -> Markup:
    whole = sum(part.seconds for part in step.parts)
    if whole <= 0:
        return Markup()
    shares = [(part, part.seconds / whole) for part in step.parts if part.seconds > 0]
    parts = [
        (f"{part.name} {part.seconds * 1e3:.3g} ms ({share:.0%})", share) for part, share in shares
    ]
    name = short(step.name or step.signature)
    return joined([tag("h4", "Wall time of ", name), divided(parts)])
