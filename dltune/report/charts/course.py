"""Amounts over time, one plot below the other on the same axes."""

from __future__ import annotations

from dltune.base.formatting import Course, Series
from dltune.report.charts.axis import Axis, up_to
from dltune.report.charts.marks import captioned
from dltune.report.charts.plot import Plot
from dltune.report.markup import Markup, joined, tag

HEIGHT = 110  # pixels of a plot


def course(drawing: Course) -> Markup:
    x = Axis(0.0, max(series.seconds for series in drawing.series) * 1e3, unit=" ms")
    high = up_to([max(series.values) for series in drawing.series])
    y = Axis(0.0, high, unit=f" {drawing.unit}")
    title = tag("p", f"{drawing.title[:1].upper()}{drawing.title[1:]}.")
    return joined([title, *(_plot(series, x, y) for series in drawing.series)])


def _plot(series: Series, x: Axis, y: Axis) -> Markup:
    said = f"at most {max(series.values):.1f}{y.unit}"
    plot = Plot(x=x, y=y, height=HEIGHT, label=f"{series.name}: {said}", y_ticks=3)
    part = series.seconds * 1e3 / len(series.values)
    points = [(number * part, value) for number, value in enumerate(series.values)]
    end = (series.seconds * 1e3, series.values[-1])
    caption = [tag("b", series.name), f": {said}"]
    return captioned(caption, plot.draw(plot.area([*points, end], "area")))
