"""Which part of the values is at most how large: a line for each of several samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dltune.report.charts.axis import Axis
from dltune.report.charts.marks import captioned, legend
from dltune.report.charts.plot import Plot
from dltune.report.markup import Markup, short
from dltune.stats import quantiles

POINTS = 101  # of a line at most


def cdf(caption: str, samples: Mapping[str, Sequence[float]], unit: str = "") -> Markup:
    """`samples`: by name, none empty."""
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
