"""A forest plot: ratios with their intervals, one below the other, on a logarithmic axis around 1.

Each row has its name and its figures as text beside the drawing, so that nothing is told by colour,
place or a pointer alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dltune.base.formatting import Ratio, Ratios
from dltune.report.charts.axis import Axis
from dltune.report.charts.marks import row, tick
from dltune.report.charts.plot import Plot
from dltune.report.markup import Markup, tag

HEIGHT = 20  # pixels of a row
# numbers half-way from 1 to the ends of an axis, which are their squares
HALVES = (1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)


def forest(drawing: Ratios) -> Markup:
    axis = around([value for r in drawing.rows for value in (r.ratio, r.low, r.high) if value])
    drawn = [_drawn(ratio, axis) for ratio in drawing.rows]
    scale = row("", _scale(axis, drawing.left, drawing.right), 34, figure="")
    return tag("div", *drawn, scale, class_="rows forest")


def around(values: Sequence[float]) -> Axis:
    """The shortest axis that holds the values above 0, as far as HALVES go."""
    furthest = max((abs(math.log(value)) for value in values if value > 0), default=0.0)
    half = next((half for half in HALVES if 2 * math.log(half) >= furthest), HALVES[-1])
    return Axis(half**-2, half**2, log=True)


def _drawn(ratio: Ratio, axis: Axis) -> Markup:
    said = f"{ratio.name}: {ratio.text}"
    plot = Plot(axis, Axis(0.0, 1.0), HEIGHT, said)
    marks = [plot.upright(1.0, "one")]
    if ratio.ratio is not None:
        style = f"interval {ratio.style}"
        marks.append(plot.reach(ratio.low or axis.low, ratio.high or axis.high, style))
        # an open end has no bar across
        marks += [plot.upright(end, style, length=8) for end in (ratio.low, ratio.high) if end]
        marks.append(plot.dot(ratio.ratio, 0.5, f"dot {ratio.style}", said, radius=5))
    return row(ratio.name, marks, HEIGHT, said, ratio.text)


def _scale(axis: Axis, left: str, right: str) -> list[Markup]:
    half = math.sqrt(axis.high)
    return [
        *(
            tick(f"{value:.3g}", axis.at(value), 12)
            for value in (axis.low, 1 / half, 1.0, half, axis.high)
        ),
        tag("text", f"← {left}", x="25%", y=28, class_="middle"),
        tag("text", f"{right} →", x="75%", y=28, class_="middle"),
    ]
