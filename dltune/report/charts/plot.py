"""A plot: marks over two axes.

The drawing is as wide as the page lets it be: positions along x are parts of the width, positions
along y are pixels. Paths are drawn in 1/1000 of the width and stretched, their strokes are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dltune.report.charts.axis import Axis
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

    def steps(
        self, points: Sequence[tuple[float, float]], style: str, *, closed: bool = False
    ) -> Markup:
        """Each value holds until the next point. `closed`: filled down to the axis."""
        if not points:
            return Markup("")
        parts = [f"M{self._x(points[0][0])},{self._y(points[0][1]):.1f}"]
        for x, y in points[1:]:
            parts.append(f"H{self._x(x)}V{self._y(y):.1f}")
        if closed:
            parts.append(f"V{self.height}H{self._x(points[0][0])}Z")
        return self._path("".join(parts), style)

    def band(self, points: Sequence[tuple[float, float, float]], style: str) -> Markup:
        """Between the second and the third value at each x."""
        above = "L".join(self._point(x, high) for x, _, high in points)
        below = "L".join(self._point(x, low) for x, low, _ in reversed(points))
        return self._path(f"M{above}L{below}Z", style)

    def dot(self, x: float, y: float, style: str, title: str, radius: float = 4) -> Markup:
        return tag(
            "circle",
            tag("title", title),
            cx=f"{100 * self.x.at(x):.2f}%",
            cy=f"{self._y(y):.1f}",
            r=f"{radius:g}",
            class_=style,
        )

    def level(self, y: float, style: str, text: str = "") -> Markup:
        """A line across, with its name at the right."""
        at = f"{self._y(y):.1f}"
        name = tag("text", text, x="99%", y=f"{self._y(y) - 4:.1f}", class_="end name")
        return tag("line", x1="0", x2="100%", y1=at, y2=at, class_=style) + name

    def draw(self, *marks: Markup) -> Markup:
        """The plot with its axes. A picture to a reader of screens, named by its label."""
        return tag(
            "div",
            tag(
                "svg", *self._numbers(), width=LEFT, height=self.height + TOP + BOTTOM, class_="ys"
            ),
            tag(
                "svg",
                *self._grid(),
                tag("g", *marks, transform=f"translate(0,{TOP})"),
                width="100%",
                height=self.height + TOP + BOTTOM,
                class_="xs",
            ),
            class_="plot",
            role="img",
            aria_label=self.label,
        )

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
        marks = []
        for value, _ in self.y.ticks(self.y_ticks):
            at = f"{TOP + self._y(value):.1f}"
            marks.append(tag("line", x1="0", x2="100%", y1=at, y2=at, class_="grid"))
        for value, text in self.x.ticks(self.x_ticks):
            place = self.x.at(value)
            where = "start" if place < 0.03 else "end" if place > 0.97 else "middle"
            marks.append(
                tag(
                    "text",
                    text,
                    x=f"{100 * place:.2f}%",
                    y=TOP + self.height + BOTTOM - 6,
                    class_=where,
                )
            )
        return marks
