"""A plot: marks over two axes.

The drawing is as wide as the page lets it be: positions along x are parts of the width, positions
along y are pixels. Paths are drawn in 1/1000 of the width and stretched, their strokes are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dltune.report.charts.axis import Axis
from dltune.report.charts.marks import percent, tick
from dltune.report.markup import Markup, tag

LEFT = 58  # pixels for the numbers along y
BOTTOM = 22  # and along x
TOP = 8
WIDE = 1000


@dataclass(frozen=True)
class Plot:
    """`label` says what is seen to those who do not see it."""

    x: Axis
    y: Axis
    height: int
    label: str
    x_ticks: int = 10
    y_ticks: int = 4

    def line(self, points: Sequence[tuple[float, float]], style: str) -> Markup:
        if not points:
            return Markup("")
        return self._path("M" + "L".join(self._point(x, y) for x, y in points), style)

    def area(self, points: Sequence[tuple[float, float]], style: str) -> Markup:
        """Each value holds until the next point; filled down to the axis."""
        if not points:
            return Markup("")
        steps = (f"H{self._x(x)}V{self._y(y):.1f}" for x, y in points[1:])
        end = f"V{self.height}H{self._x(points[0][0])}Z"
        return self._path(f"M{self._point(*points[0])}{''.join(steps)}{end}", style)

    def band(self, points: Sequence[tuple[float, float, float]], style: str) -> Markup:
        """Between the second and the third value at each x."""
        above = "L".join(self._point(x, high) for x, _, high in points)
        below = "L".join(self._point(x, low) for x, low, _ in reversed(points))
        return self._path(f"M{above}L{below}Z", style)

    def dot(self, x: float, y: float, style: str, title: str, radius: float = 4) -> Markup:
        return tag(
            "circle",
            tag("title", title),
            cx=percent(self.x.at(x)),
            cy=f"{self._y(y):.1f}",
            r=f"{radius:g}",
            class_=style,
        )

    def level(self, y: float, style: str, text: str = "") -> Markup:
        """A line across, with its name at the right."""
        at = f"{self._y(y):.1f}"
        name = tag("text", text, x="99%", y=f"{self._y(y) - 4:.1f}", class_="end name")
        return tag("line", x1="0", x2="100%", y1=at, y2=at, class_=style) + name

    def upright(self, x: float, style: str, length: int | None = None) -> Markup:
        """An upright line: `length` pixels about the middle of the height, or all of it."""
        at, half = percent(self.x.at(x)), (length or self.height) / 2
        middle = self.height / 2
        return tag("line", x1=at, x2=at, y1=middle - half, y2=middle + half, class_=style)

    def reach(self, low: float, high: float, style: str) -> Markup:
        """A line at half the height, from `low` to `high`."""
        left, right = percent(self.x.at(low)), percent(self.x.at(high))
        middle = self.height / 2
        return tag("line", x1=left, x2=right, y1=middle, y2=middle, class_=style)

    def draw(self, *marks: Markup) -> Markup:
        """The plot with its axes. A picture to a reader of screens, named by its label."""
        tall = self.height + TOP + BOTTOM
        moved = tag("g", *marks, transform=f"translate(0,{TOP})")
        numbers = tag("svg", *self._numbers(), width=LEFT, height=tall, class_="ys")
        drawn = tag("svg", *self._grid(), moved, width="100%", height=tall, class_="xs")
        return tag("div", numbers, drawn, class_="plot", role="img", aria_label=self.label)

    def _path(self, d: str, style: str) -> Markup:
        return tag(
            "svg",
            tag("path", d=Markup(d), class_=style),
            view_box=f"0 0 {WIDE} {self.height}",
            preserve_aspect_ratio="none",
            width="100%",
            height=self.height,
            class_="stretched",
        )

    def _x(self, value: float) -> str:
        return f"{WIDE * self.x.at(value):.1f}".removesuffix(".0")

    def _y(self, value: float) -> float:
        return self.height * (1 - self.y.at(value))

    def _point(self, x: float, y: float) -> str:
        return f"{self._x(x)},{self._y(y):.1f}"

    def _numbers(self) -> list[Markup]:
        return [
            tag("text", text, x=LEFT - 6, y=f"{TOP + self._y(value) + 4:.1f}", class_="end")
            for value, text in self.y.ticks(self.y_ticks)
        ]

    def _grid(self) -> list[Markup]:
        heights = [f"{TOP + self._y(value):.1f}" for value, _ in self.y.ticks(self.y_ticks)]
        below = TOP + self.height + BOTTOM - 6
        return [
            *(tag("line", x1="0", x2="100%", y1=at, y2=at, class_="grid") for at in heights),
            *(tick(text, self.x.at(value), below) for value, text in self.x.ticks(self.x_ticks)),
        ]
