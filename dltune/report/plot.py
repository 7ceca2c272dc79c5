"""Plots on the page: lines, areas and dots over two axes, forest plots, and coloured tiles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dltune.base.formatting import Course, Ratio, Ratios, Series, Tile, Tiles
from dltune.report.markup import Markup, captioned, joined, legend, percent, row, short, tag, tick
from dltune.stats import quantiles


@dataclass(frozen=True)
class Axis:
    """An axis: where a value lies on it, and which values are written next to it. It goes from
    `low` to `high`, linear or (both above 0) logarithmic. `unit` is written after numbers; `whole`:
    only whole numbers are written, as for counts."""

    low: float
    high: float
    unit: str = ""
    log: bool = False
    whole: bool = False

    def at(self, value: float) -> float:
        """0 at `low`, 1 at `high`; what lies outside is drawn at the end."""
        if self.log:
            low, high = math.log10(self.low), math.log10(self.high)
            place = math.log10(max(value, self.low))
        else:
            low, high, place = self.low, self.high, value
        return min(1.0, max(0.0, (place - low) / (high - low))) if high > low else 0.5

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Round values with their text, `most` of them at the most."""
        values = list(self._decades(most) if self.log else self._round(most))
        return [(value, f"{_short(value)}{self.unit}") for value in values]

    def _round(self, most: int) -> Iterator[float]:
        step = round_step((self.high - self.low) / max(1, most - 1))
        if self.whole:
            step = max(1.0, step)
        count = math.ceil(self.low / step - 1e-9)
        while count * step <= self.high + 1e-9 * step:
            yield count * step
            count += 1

    def _decades(self, most: int) -> Iterator[float]:
        first = math.ceil(math.log10(self.low) - 1e-9)
        last = math.floor(math.log10(self.high) + 1e-9)
        every = max(1, math.ceil((last - first + 1) / most))
        for power in range(first, last + 1, every):
            yield 10.0**power


def round_step(least: float) -> float:
    """The least of 1, 2 or 5 times a power of ten that is not below `least`."""
    if not least > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next((f * power for f in (1.0, 2.0, 5.0) if f * power >= least * (1 - 1e-9)), 10 * power)


def up_to(values: Iterable[float]) -> float:
    """A round end for an axis from 0 that holds all values."""
    most = max(values, default=0.0)
    step = round_step(most / 4)
    return step * max(1, math.ceil(most / step - 1e-9))


def _short(value: float) -> str:
    text = f"{value:.6g}"
    for limit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if letter == 'k' else limit):g}{letter}"
    return text


LEFT = 58  # pixels for the numbers along y
BOTTOM = 22  # and along x
TOP = 8
WIDE = 1000


@dataclass(frozen=True)
class Plot:
    """A plot: marks over two axes. `label` says what is seen to those who do not see it.

    The drawing is as wide as the page lets it be: positions along x are parts of the width,
    positions along y are pixels. Paths are drawn in 1/1000 of the width and stretched, their
    strokes are not.
    """

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


# Distributions

POINTS = 101  # of a line at most


def cdf(caption: str, samples: Mapping[str, Sequence[float]], unit: str = "") -> Markup:
    """Draw which part of the values is at most how large: a line for each of several samples.
    `samples`: by name, none empty."""
    ends = [end for values in samples.values() for end in (min(values), max(values))]
    plot = Plot(
        x=Axis(min(ends), max(ends), unit),
        y=Axis(0.0, 100.0, " %"),
        height=160,
        label=f"{caption}: " + "; ".join(_said(*one, unit) for one in samples.items()),
        x_ticks=6,
    )
    marks, names = [], []
    for index, (name, values) in enumerate(samples.items()):
        count = max(2, min(len(values), POINTS))
        shares = [place / (count - 1) for place in range(count)]
        points = [(x, 100 * s) for x, s in zip(quantiles(values, shares), shares, strict=True)]
        marks.append(plot.line(points, f"line stroke{index % 8}"))
        names.append((f"line stroke{index % 8}", _said(name, values, unit)))
    return captioned(caption, plot.draw(*marks)) + legend(names)


def _said(name: str, values: Sequence[float], unit: str) -> str:
    low, middle, high = (f"{value:.2f}" for value in quantiles(values, (0.05, 0.5, 0.95)))
    return f"{short(name)}: half at most {middle}{unit}, 90 % from {low} to {high}{unit}"


# Amounts over time

COURSE_HEIGHT = 110  # pixels of a plot


def course(drawing: Course) -> Markup:
    """Draw amounts over time, one plot below the other on the same axes."""
    x = Axis(0.0, max(series.seconds for series in drawing.series) * 1e3, unit=" ms")
    high = up_to([max(series.values) for series in drawing.series])
    y = Axis(0.0, high, unit=f" {drawing.unit}")
    title = tag("p", f"{drawing.title[:1].upper()}{drawing.title[1:]}.")
    return joined([title, *(_plot(series, x, y) for series in drawing.series)])


def _plot(series: Series, x: Axis, y: Axis) -> Markup:
    said = f"at most {max(series.values):.1f}{y.unit}"
    plot = Plot(x=x, y=y, height=COURSE_HEIGHT, label=f"{series.name}: {said}", y_ticks=3)
    part = series.seconds * 1e3 / len(series.values)
    points = [(number * part, value) for number, value in enumerate(series.values)]
    end = (series.seconds * 1e3, series.values[-1])
    caption = [tag("b", series.name), f": {said}"]
    return captioned(caption, plot.draw(plot.area([*points, end], "area")))


# Forest plots

ROW_HEIGHT = 20  # pixels of a row
# numbers half-way from 1 to the ends of an axis, which are their squares
HALVES = (1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)


def forest(drawing: Ratios) -> Markup:
    """Draw a forest plot: ratios with their intervals, one below the other, on a logarithmic axis
    around 1.

    Each row has its name and its figures as text next to the drawing, so that no information
    depends on colour, place or a pointer alone.
    """
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
    plot = Plot(axis, Axis(0.0, 1.0), ROW_HEIGHT, said)
    marks = [plot.upright(1.0, "one")]
    if ratio.ratio is not None:
        style = f"interval {ratio.style}"
        marks.append(plot.reach(ratio.low or axis.low, ratio.high or axis.high, style))
        # an open end has no bar across
        marks += [plot.upright(end, style, length=8) for end in (ratio.low, ratio.high) if end]
        marks.append(plot.dot(ratio.ratio, 0.5, f"dot {ratio.style}", said, radius=5))
    return row(ratio.name, marks, ROW_HEIGHT, said, ratio.text)


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


# Tiles

TILE_WIDTH, TILE_HEIGHT = 96, 64  # pixels of a rectangle
# colours that are named one by one
NAMED = 32
# degrees between hues that follow each other, the golden angle: neighbours are told apart
TURN = 137.508


def tiles(drawing: Tiles) -> Markup:
    """Draw rectangles cut into coloured parts, one next to the other."""
    title = drawing.title[:1].upper() + drawing.title[1:]
    figures = [_figure(one, drawing) for one in drawing.tiles]
    return joined([tag("p", f"{title}."), _legend(drawing), tag("div", *figures, class_="tiles")])


def _figure(one: Tile, drawing: Tiles) -> Markup:
    marks = []
    tall = TILE_HEIGHT / len(one.parts)
    for y, line in enumerate(one.parts):
        wide = TILE_WIDTH / len(line)
        for x, part in enumerate(line):
            names = ", ".join(drawing.colours[colour] for colour in part)
            stripes = [
                tag(
                    "rect",
                    x=f"{x * wide:.2f}",
                    y=f"{y * tall + n * tall / len(part):.2f}",
                    width=f"{wide:.2f}",
                    height=f"{tall / len(part):.2f}",
                    fill=_colour(colour, len(drawing.colours)),
                )
                for n, colour in enumerate(part)
            ]
            edge = tag(
                "rect",
                x=f"{x * wide:.2f}",
                y=f"{y * tall:.2f}",
                width=f"{wide:.2f}",
                height=f"{tall:.2f}",
                class_="edge",
            )
            marks.append(tag("g", tag("title", names), *stripes, edge))
    label = f"{one.name}: {one.text}"
    drawn = tag(
        "svg", *marks, width=TILE_WIDTH, height=TILE_HEIGHT, role="img", aria_label=short(label)
    )
    caption = tag("figcaption", tag("b", short(one.name)), tag("span", one.text))
    return tag("figure", drawn, caption)


def _legend(drawing: Tiles) -> Markup:
    count = len(drawing.colours)
    if count > NAMED:
        return tag(
            "p",
            f"Each of the {count} devices has its own colour; point at a tile to see its device.",
        )
    items = []
    for number, name in enumerate(drawing.colours):
        fill = _colour(number, count)
        shape = tag("rect", width=12, height=12, fill=fill)
        items.append(tag("li", tag("svg", shape, class_="swatch", aria_hidden="true"), short(name)))
    return tag("ul", *items, class_="legend")


def _colour(number: int, count: int) -> str:
    """Hues around the circle; where there are many, they go around in turns."""
    hue = number * 360 / count if count <= 12 else number * TURN % 360
    light = 62 if number % 2 else 50
    return f"hsl({hue:.0f}, 65%, {light}%)"
