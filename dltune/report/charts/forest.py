"""A forest plot: ratios with their intervals, one below the other, on a logarithmic axis around 1.

Each row has its name and its figures as text beside the drawing, so that nothing is told by colour,
place or a pointer alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dltune.report.charts.axis import Axis
from dltune.report.markup import Markup, tag
from dltune.tables import Ratio, Ratios

HEIGHT = 20  # pixels of a row
# numbers half-way from 1 to the ends of an axis, which are their squares
HALVES = (1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)


def forest(drawing: Ratios) -> Markup:
    rows = drawing.rows
    axis = around([value for row in rows for value in (row.ratio, row.low, row.high) if value])
    drawn = [
        tag(
            "div",
            tag("span", row.name, class_="name"),
            _drawn(row, axis),
            tag("span", row.text, class_="figure"),
            class_="row",
        )
        for row in rows
    ]
    lines = _scale(axis, drawing.left, drawing.right)
    scale = tag("svg", *lines, width="100%", height=34, class_="beside", aria_hidden="true")
    ends = (tag("span", class_="name"), scale, tag("span", class_="figure"))
    return tag("div", *drawn, tag("div", *ends, class_="row"), class_="rows forest")


def around(values: Sequence[float]) -> Axis:
    """The shortest axis that holds the values above 0, as far as HALVES go."""
    furthest = max((abs(math.log(value)) for value in values if value > 0), default=0.0)
    half = next((half for half in HALVES if 2 * math.log(half) >= furthest), HALVES[-1])
    return Axis(half**-2, half**2, log=True)


def _drawn(row: Ratio, axis: Axis) -> Markup:
    middle = f"{100 * axis.at(1.0):.2f}%"
    marks = [tag("line", x1=middle, x2=middle, y1="0", y2=HEIGHT, class_="one")]
    if row.ratio is not None:
        low = axis.at(row.low) if row.low else 0.0
        high = axis.at(row.high) if row.high else 1.0
        at = HEIGHT / 2
        marks.append(
            tag(
                "line", x1=f"{100 * low:.2f}%", x2=f"{100 * high:.2f}%", y1=at, y2=at,
                class_=f"interval {row.style}",
            )
        )  # fmt: skip
        for end, known in ((low, row.low), (high, row.high)):
            if known:  # an open end has no bar across
                place = f"{100 * end:.2f}%"
                marks.append(
                    tag("line", x1=place, x2=place, y1=at - 4, y2=at + 4,
                        class_=f"interval {row.style}")
                )  # fmt: skip
        marks.append(
            tag(
                "circle",
                tag("title", f"{row.name}: {row.text}"),
                cx=f"{100 * axis.at(row.ratio):.2f}%",
                cy=at,
                r=5,
                class_=f"dot {row.style}",
            )
        )
    return tag(
        "svg", *marks, width="100%", height=HEIGHT, class_="beside", role="img",
        aria_label=f"{row.name}: {row.text}",
    )  # fmt: skip


def _scale(axis: Axis, left: str, right: str) -> list[Markup]:
    half = math.sqrt(axis.high)
    marks = [
        tag("text", f"{value:.3g}", x=f"{100 * axis.at(value):.2f}%", y=12, class_=where)
        for value, where in (
            (axis.low, "start"),
            (1 / half, "middle"),
            (1.0, "middle"),
            (half, "middle"),
            (axis.high, "end"),
        )
    ]
    return [
        *marks,
        tag("text", f"← {left}", x="25%", y=28, class_="middle"),
        tag("text", f"{right} →", x="75%", y=28, class_="middle"),
    ]
