"""Measured and simulated timelines of a step, to be zoomed, and how many ops ran at once (Fig. 4).

The slices go to the page's script as numbers: start and duration in nanoseconds, starts as
differences to the one before, and the number of the node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from dltune.base.formatting import Table, columns, visible
from dltune.report.charts.axis import Axis, up_to
from dltune.report.charts.marks import captioned, legend
from dltune.report.charts.plot import Plot
from dltune.report.charts.thin import thinned
from dltune.report.execution import Execution
from dltune.report.markup import Markup, data, joined, short, tag
from dltune.report.sections.transfers import transfers
from dltune.report.table import html
from dltune.report.timeline import Row, Timeline, corunning, mean_corunning
from dltune.schemas.profile import Node, Profile

COLOURS = 8  # op types that have a colour of their own
NAME = 100  # characters of a node's name
LONG = 120  # and of an op's key
LONGEST = 40  # slices in the table
KEYS = (
    ("←  →", "move"),
    ("+  -", "zoom"),
    ("0", "the whole step"),
    ("n  p", "next and previous op"),
    ("↑  ↓", "row"),
)


def timelines(profile: Profile, execution: Execution, identifier: str) -> Markup:
    """The zoomable picture, and the longest slices as a table for those who do not see it."""
    if not execution.timelines:
        return tag("p", "This profile has no timeline.")
    heavy = heaviest(execution)
    label = (
        f"Timelines of the step: {'; '.join(t.title for t in execution.timelines)}. "
        "Arrow keys move, plus and minus zoom, n and p go from op to op."
    )
    return joined(
        [
            *(tag("p", sentence) for sentence in transfers(profile, execution.step)),
            zoomable(identifier, label, heavy, encoded(profile, execution, heavy)),
            tag(
                "details",
                tag("summary", f"The {LONGEST} longest ops as a table"),
                _longest(execution, f"{identifier}-longest"),
            ),
        ]
    )


def zoomable(identifier: str, label: str, heavy: Sequence[str], source: bytes) -> Markup:
    """A picture that the page's script draws from `source` (`encoded`). `heavy`: what each colour
    stands for."""
    colours = [(f"fill{index}", short(kind)) for index, kind in enumerate(heavy)]
    buttons = [
        tag("button", text, type="button", data_act=act, aria_label=said)
        for text, act, said in (
            ("+", "in", "zoom in"),
            ("-", "out", "zoom out"),
            ("←", "left", "move left"),
            ("→", "right", "move right"),
            ("whole step", "all", "show the whole step"),
        )
    ]
    keys = [(tag("span", tag("kbd", key), " ", what), " ") for key, what in KEYS]
    at = f"{identifier}-at"
    canvas = tag("canvas", tabindex="0", role="application", aria_label=label, aria_describedby=at)
    told = tag("output", "", id=at, class_="at", aria_live="polite")
    return joined(
        [
            legend([*colours, ("fillrest", "all other types")]),
            tag("p", *buttons, class_="tools"),
            tag("div", canvas, told, class_="timeline", data_source=identifier),
            tag("p", *keys, "Dragging moves, Ctrl and the wheel zooms.", class_="keys"),
            tag("noscript", tag("p", "The timelines are drawn by this page's script.")),
            data(identifier, source),
        ]
    )


def fig4(execution: Execution) -> Markup:
    """The number of co-running ops over time: the range in each moment's width, and its mean."""
    if not execution.timelines:
        return tag("p", "This profile has no timeline.")
    end = max(timeline.end for timeline in execution.timelines) / 1e6
    series = {t.title: corunning(t.slices) for t in execution.timelines}
    high = up_to([execution.inter, *(n for points in series.values() for _, n in points)])
    figures = []
    for timeline in execution.timelines:
        points = [(time / 1e6, float(count)) for time, count in series[timeline.title]]
        band, mean = thinned(points, timeline.end / 1e6)
        average = mean_corunning(timeline.slices)
        plot = Plot(
            x=Axis(0.0, end, unit=" ms"),
            y=Axis(0.0, high, whole=True),
            height=90,
            label=f"{timeline.title}: {average:.2f} ops in flight on average over events, at most "
            f"{max(count for _, count in points):.0f}",
            y_ticks=3,
        )
        caption = f": {timeline.end / 1e6:.1f} ms, {average:.2f} ops in flight on average"
        drawn = plot.draw(
            plot.band(band, "range"),
            plot.line(mean, "line spread"),
            plot.level(execution.inter, "recommended"),
        )
        figures.append(captioned([tag("b", timeline.title), caption], drawn))
    names = legend(
        [
            ("line spread", "mean over time"),
            ("range", "range"),
            ("recommended", f"inter-op parallelism TensorFlow recommends: {execution.inter}"),
        ]
    )
    return joined([*figures, names])


def heaviest(execution: Execution) -> list[str]:
    """The op types with the most time over all timelines, which get colours."""
    time: Counter[str] = Counter()
    for timeline in execution.timelines:
        for piece in timeline.whole:
            time[execution.step.nodes[piece.node].type] += piece.end - piece.start
    return [kind for kind, _ in time.most_common(COLOURS)]


def encoded(profile: Profile, execution: Execution, heavy: list[str]) -> bytes:
    """Nodes and slices for the script."""
    step = execution.step
    used = sorted({piece.node for timeline in execution.timelines for piece in timeline.whole})
    number = {node: index for index, node in enumerate(used)}
    told = [_about(profile, step.nodes[node]) for node in used]
    keys = {text: index for index, text in enumerate(dict.fromkeys(filter(None, told)))}
    colour = {kind: index for index, kind in enumerate(heavy)}
    return msgspec.json.encode(
        {
            "keys": list(keys),
            "names": [visible(step.nodes[node].name, NAME) for node in used],
            "ops": [keys.get(text, -1) for text in told],
            "colours": [colour.get(step.nodes[node].type, -1) for node in used],
            "end": max(timeline.end for timeline in execution.timelines),
            "timelines": [_timeline(timeline, number) for timeline in execution.timelines],
        }
    )


def _about(profile: Profile, node: Node) -> str:
    """Its op, or the tensor that it receives; empty for a node without either."""
    if node.received and node.partner:
        size = sum(tensor.bytes for tensor in node.outputs)
        tensor = visible(node.partner.tensor, LONG)
        return f"{tensor} ({size:,} bytes, {visible(' to '.join(node.received), LONG)})"
    return "" if node.op is None else visible(profile.ops[node.op].key, LONG)


def _timeline(timeline: Timeline, number: dict[int, int]) -> dict[str, object]:
    def rows(found: Sequence[Row]) -> list[dict[str, object]]:
        return [{"label": row.label, "slices": _flat(row, number)} for row in found]

    links, ops = rows(timeline.links), rows(timeline.rows)
    return {"title": timeline.title, "end": timeline.end, "links": links, "rows": ops}


def _flat(row: Row, number: dict[int, int]) -> list[int]:
    flat: list[int] = []
    before = 0
    for piece in row.slices:
        flat += (piece.start - before, piece.end - piece.start, number[piece.node])
        before = piece.start
    return flat


def _longest(execution: Execution, identifier: str) -> Markup:
    found = [
        (piece.end - piece.start, timeline.title, piece)
        for timeline in execution.timelines
        for piece in timeline.whole
    ]
    found.sort(key=lambda entry: (-entry[0], entry[2].start))
    rows = []
    for duration, title, piece in found[:LONGEST]:
        node = execution.step.nodes[piece.node]
        times = (f"{piece.start / 1e6:.3f}", f"{duration / 1e6:.3f}")
        rows.append((title, node.name, node.type, *times, ", ".join(map(str, piece.cores))))
    heads = columns("timeline", "name", "type", ">start ms", ">ms", "cores")
    return html(Table("the longest ops of the timelines", heads, rows, sorted_by=4), identifier)
