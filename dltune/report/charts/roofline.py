"""The roofline: ops by intensity and rate, under the ceilings."""

from __future__ import annotations

from collections.abc import Sequence

from dltune.analysis.roofline import Figures, Roofline
from dltune.report.charts.axis import Axis
from dltune.report.charts.plot import Plot
from dltune.report.markup import Markup, short

# the area of a dot is its op's share of all op time; pixels of the radius
SMALLEST, LARGEST = 2.5, 14.0


def roofline(ops: Sequence[Figures], roof: Roofline) -> Markup | None:
    """None when no op has a place, or no ceiling is known."""
    placed = [
        (of, rates.intensity, rates.flop_rate)
        for of in ops
        if of.best and (rates := of.best.rates) and rates.intensity and rates.flop_rate
    ]
    computing = [of.rate for of in roof.dtypes.values()] or (
        [roof.compute.rate] if roof.compute else []
    )
    if not placed or not computing:
        return None
    x = _around([intensity for _, intensity, _ in placed])
    y = _around([*(rate / 1e9 for rate in computing), *(rate / 1e9 for _, _, rate in placed)])
    plot = Plot(x, y, 300, f"Roofline of {len(placed)} ops, flop/s over flop per byte", y_ticks=6)
    marks = [plot.level(rate / 1e9, "roof", "compute") for rate in computing]
    for name, ceiling in (("memory", roof.memory), ("cache", roof.cache)):
        if ceiling:
            slope = ceiling.rate / 1e9
            # over its part below the compute roof and inside the plot; straight in both logarithms
            left = max(x.low, y.low / slope)
            right = min(x.high, max(computing) / ceiling.rate)
            if left < right:
                points = [(left, left * slope), (right, right * slope)]
                marks.append(plot.line(points, f"roof {name}"))
    most = max(of.share for of, _, _ in placed) or 1.0
    for of, intensity, rate in sorted(placed, key=lambda p: -p[0].share):
        radius = max(SMALLEST, LARGEST * (of.share / most) ** 0.5)
        where = f", {of.position.share:.0%} of {of.position.under}" if of.position else ""
        title = f"{short(of.op.key)}: {rate / 1e9:.3g} GFLOP/s at {intensity:.3g} flop/B{where}"
        style = f"dot {of.position.under if of.position else 'none'}"
        marks.append(plot.dot(intensity, rate / 1e9, style, title, radius))
    return plot.draw(*marks)


def _around(values: Sequence[float]) -> Axis:
    return Axis(min(values) / 1.6, max(values) * 1.6, log=True)
