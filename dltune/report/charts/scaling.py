"""An op's time by threads: a line for each placement, a ring at the chosen point."""

from __future__ import annotations

from dltune.report.charts.axis import Axis, up_to
from dltune.report.charts.plot import Plot
from dltune.report.markup import Markup, short, tag
from dltune.schemas.profile import Op, OpTime, Placement

PLACEMENTS: tuple[Placement, ...] = ("spread", "shared")
SPARK = (84, 22)  # pixels


def scaling(op: Op, chosen: tuple[int, Placement | None] | None) -> Markup:
    """Medians with their spread, in milliseconds, from 0."""
    most = max(time.threads for time in op.times)
    high = up_to(time.median * (1 + time.spread) * 1e3 for time in op.times)
    said = ", ".join(f"{t.threads} {t.placement} {t.median * 1e3:.3g} ms" for t in op.times)
    plot = Plot(
        x=Axis(0.5, most + 0.5, whole=True),
        y=Axis(0.0, high, unit=" ms"),
        height=110,
        label=f"{short(op.type)} by threads: {said}",
        x_ticks=6,
        y_ticks=3,
    )
    marks = [
        plot.line([(t.threads, t.median * 1e3) for t in line(op, placement)], f"line {placement}")
        for placement in PLACEMENTS
    ]
    for time in op.times:
        title = f"{time.threads} threads {time.placement}: {time.median * 1e3:.3f} ms"
        marks.append(
            plot.dot(time.threads, time.median * 1e3, f"dot {time.placement}", title, radius=3)
        )
    if chosen and (at := near(op, chosen)):
        title = f"chosen: {chosen[0]} threads {chosen[1] or ''}".strip()
        marks.append(plot.dot(at.threads, at.median * 1e3, "ring", title, radius=7))
    return plot.draw(*marks)


def spark(op: Op, chosen: tuple[int, Placement | None] | None) -> Markup:
    """The same in a table's cell, without numbers."""
    wide, tall = SPARK
    most = max(time.threads for time in op.times)
    high = max(time.median for time in op.times) or 1.0

    def place(time: OpTime) -> tuple[float, float]:
        x = 5 + (wide - 10) * ((time.threads - 1) / (most - 1) if most > 1 else 0.5)
        return x, tall - 4 - (tall - 8) * time.median / high

    marks = []
    for placement in PLACEMENTS:
        if points := [place(time) for time in line(op, placement)]:
            d = "M" + "L".join(f"{x:.0f},{y:.1f}" for x, y in points)
            marks.append(tag("path", d=Markup(d), class_=f"line {placement}"))
    if chosen and (at := near(op, chosen)):
        x, y = place(at)
        marks.append(tag("circle", cx=f"{x:.0f}", cy=f"{y:.1f}", r=3, class_="ring"))
    return tag("svg", *marks, width=wide, height=tall, aria_hidden="true")


def line(op: Op, placement: Placement) -> list[OpTime]:
    """The points of a placement; one thread, which has no neighbour to share with, is in both."""
    found = [t for t in op.times if t.placement == placement or t.threads == 1]
    return sorted(found, key=lambda time: time.threads)


def near(op: Op, chosen: tuple[int, Placement | None]) -> OpTime | None:
    """The measured point for a choice; without a placement, the first that was measured. None when
    none was measured there, as in a plan for a larger machine."""
    count, placement = chosen
    there = [time for time in op.times if time.threads == count]
    return next((t for t in there if t.placement == placement), there[0] if there else None)
