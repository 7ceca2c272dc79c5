"""Memory over the step: an estimate from the graph beside what the allocator held."""

from __future__ import annotations

from dltune.report.charts.axis import Axis, up_to
from dltune.report.charts.marks import captioned, legend
from dltune.report.charts.plot import Plot
from dltune.report.charts.thin import thinned
from dltune.report.execution import Execution, live_bytes
from dltune.report.markup import Markup, joined, tag
from dltune.schemas.profile import Memory

MIB = 2**20


def memory(found: Memory | None, execution: Execution) -> Markup:
    base = found.live if found else 0
    series = {
        timeline.title: [(time / 1e6, (base + size) / MIB) for time, size in points]
        for timeline in execution.timelines
        if (points := live_bytes(execution.step, timeline.whole))
    }
    if not series:
        return tag("p", "This profile has no timeline to estimate memory over.")
    peaks = {title: max(size for _, size in points) for title, points in series.items()}
    measured = [found.peak / MIB] if found else []
    end = max(timeline.end for timeline in execution.timelines) / 1e6
    high = up_to([*peaks.values(), *measured])
    levels = (
        [
            ("recommended", found.peak / MIB, "measured peak"),
            ("live", found.live / MIB, "live between steps"),
        ]
        if found
        else []
    )
    figures = []
    for timeline in execution.timelines:
        if timeline.title not in series:
            continue
        band, _ = thinned(series[timeline.title], timeline.end / 1e6)
        plot = Plot(
            x=Axis(0.0, end, unit=" ms"),
            y=Axis(0.0, high, unit=" MiB"),
            height=110,
            label=f"{timeline.title}: at most {peaks[timeline.title]:.0f} MiB",
            y_ticks=3,
        )
        marks = [plot.area([(x, most) for x, _, most in band], "area")]
        marks += [plot.level(size, style) for style, size, _ in levels]
        caption = f": at most {peaks[timeline.title]:.0f} MiB by the graph"
        figures.append(captioned([tag("b", timeline.title), caption], plot.draw(*marks)))
    names = [
        ("area", "estimate: outputs still to be read" + (", on what is live" if found else "")),
        *((style, f"{name}: {size:.0f} MiB") for style, size, name in levels),
    ]
    note = (
        "The estimate keeps each op's output from its start to the end of its last reader. It "
        "does not contain temporary memory of kernels, or outputs that overwrite an input; the "
        "measured peak contains both."
    )
    return joined([*figures, legend(names), tag("p", note, class_="note")])
