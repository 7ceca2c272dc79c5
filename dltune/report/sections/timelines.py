"""Sections of the page over the time of a step: timelines, co-running ops, memory, schedules.

Timelines are measured or simulated, and can be zoomed. The page's script draws them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from dltune.base.formatting import Table, columns, counted, visible
from dltune.profile.processes import receives
from dltune.report.markup import Markup, captioned, data, html, joined, legend, short, tag
from dltune.report.plot import Axis, Plot, up_to
from dltune.report.timeline import (
    Execution,
    Row,
    Timeline,
    corunning,
    live_bytes,
    mean_corunning,
    measured,
)
from dltune.schemas.graph import kind
from dltune.schemas.profile import Memory, Node, Profile, Step
from dltune.simulate.overlap import Bounds
from dltune.views import Schedule, Slice, Track

# Long series of points

COLUMNS = 500


def thinned(
    points: Sequence[tuple[float, float]], end: float, columns: int = COLUMNS
) -> tuple[list[tuple[float, float, float]], list[tuple[float, float]]]:
    """Reduce a series of thousands of points to what can be seen of it.

    The series is a step function that holds each value until the next point, up to `end`. Return
    for each column of equal width (x, lowest, highest), and (x, mean over time).
    """
    if not points or end <= points[0][0]:
        return [], []
    times, levels = np.array(points).T
    times = np.append(times, end)
    area = np.append(0.0, np.cumsum(levels * np.diff(times)))
    edges = np.linspace(times[0], end, columns + 1)
    middles = ((edges[:-1] + edges[1:]) / 2).tolist()
    mean = np.diff(np.interp(edges, times, area)) / np.diff(edges)
    # the points that hold at the edges: a column sees both, and all between
    holding = np.searchsorted(times[:-1], edges, "right") - 1
    seen = [levels[a : b + 1] for a, b in itertools.pairwise(holding)]
    band = [(x, float(s.min()), float(s.max())) for x, s in zip(middles, seen, strict=True)]
    return band, list(zip(middles, mean.tolist(), strict=True))


# Transfers between tasks
def transfers(profile: Profile, step: Step) -> Iterator[str]:
    """Yield what came from other tasks in a step, and how well that overlapped with the step's ops.

    The sentences say what the bars of links mean, and E of the execution that was measured (TicTac,
    equations 1 to 3), with the bounds by which `dltune run` reports it. A step that received
    nothing has no sentences.
    """
    found = measured(step)
    if not found.links:
        return
    yield (
        "In the rows of links, a tensor's bar starts when the previous tensor arrived, or when "
        "the tensor was requested, and ends when it arrived. Other tensors can overlap with it."
    )
    came = {piece.node: piece.end for link in found.links for piece in link.slices}
    loads: dict[str, int] = {}
    for one in receives(profile, step):
        loads[one.sender] = max(loads.get(one.sender, 0), came.get(one.node, 0))
    if not loads:
        return
    waits = ("input", "communication")
    ops = [(s.start, s.end) for s in found.slices if kind(step.nodes[s.node].type) not in waits]
    bounds = Bounds.run(ops, loads.values())
    yield (
        f"The measured execution took {found.end / 1e6:.1f} ms. The lower bound is "
        f"{bounds.lower / 1e6:.1f} ms (L: only its ops, or only its busiest link), and the upper "
        f"bound {bounds.upper / 1e6:.1f} ms (U: nothing overlaps). Its efficiency E is "
        f"{bounds.efficiency(found.end):.2f}."
    )


# Timelines of a step, and co-running ops

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
    """Return the zoomable picture of the measured and simulated timelines of a step, and the
    longest slices as a table for those who do not see it."""
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
            zoomable(identifier, label, heavy, encode_timeline(profile, execution, heavy)),
            tag(
                "details",
                tag("summary", f"The {LONGEST} longest ops as a table"),
                _longest(execution, f"{identifier}-longest"),
            ),
        ]
    )


def zoomable(identifier: str, label: str, heavy: Sequence[str], source: bytes) -> Markup:
    """A picture that the page's script draws from `source`, made by `encode_timeline` or
    `encode_schedule`. `heavy`: what each colour stands for."""
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
    """Draw how many ops ran at once (Fig. 4), over time: the range in each moment's width, and its
    mean."""
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


def encode_timeline(profile: Profile, execution: Execution, heavy: list[str]) -> bytes:
    """Return nodes and slices for the script.

    Slices are numbers: start and duration in nanoseconds, starts as differences to the one before,
    and the number of the node.
    """
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
        return [
            {
                "label": row.label,
                "slices": _flat((one.start, one.end, number[one.node]) for one in row.slices),
            }
            for row in found
        ]

    links, ops = rows(timeline.links), rows(timeline.rows)
    return {"title": timeline.title, "end": timeline.end, "links": links, "rows": ops}


def _flat(slices: Iterable[tuple[int, int, int]]) -> list[int]:
    """Put slices into one list: of each, the distance from the last start, length and number."""
    flat: list[int] = []
    before = 0
    for start, end, number in slices:
        flat += (start - before, end - start, number)
        before = start
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


# Memory over a step

MIB = 2**20


def memory(found: Memory | None, execution: Execution) -> Markup:
    """Draw memory over the step: an estimate from the graph next to the memory that the allocator
    held."""
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


# Schedules of devices and links

# slices on one page, and rows: a picture of more is none
MOST, ROWS = 100_000, 96


def schedule(shown: Schedule, identifier: str) -> Markup:
    """Return what each device and each link does in a simulated step, to be zoomed."""
    drawn = within(shown)
    kinds: Counter[str] = Counter()
    for each in _slices((*drawn.devices, *drawn.links)):
        kinds[each.kind] += each.end - each.start
    heavy = [kind for kind, _ in kinds.most_common(COLOURS)]
    label = f"{shown.title}. Arrow keys move, plus and minus zoom, n and p go from op to op."
    return joined(
        [
            *(tag("p", f"{sentence}.") for sentence in _left_out(shown, drawn)),
            zoomable(identifier, label, heavy, encode_schedule(drawn, heavy)),
        ]
    )


def within(shown: Schedule) -> Schedule:
    """As much of it as a page can draw: devices that have anything to do first, then the links that
    are busy the longest."""
    busy = sorted(shown.links, key=lambda track: -sum(w.end - w.start for w in track.slices))
    kept: set[int] = set()
    room = MOST
    for track in (*filter(lambda track: track.slices, shown.devices), *busy):
        room -= len(track.slices)
        if room < 0 or len(kept) == ROWS:
            break
        kept.add(id(track))
    return Schedule(
        shown.title,
        [track for track in shown.devices if id(track) in kept],
        [track for track in shown.links if id(track) in kept],
    )


def _left_out(shown: Schedule, drawn: Schedule) -> Iterable[str]:
    working = [track for track in shown.devices if track.slices]
    if idle := len(shown.devices) - len(working):
        yield f"{idle} of {counted(len(shown.devices), 'device')} are idle"
    for what, some, every in (
        ("device", drawn.devices, working),
        ("link", drawn.links, shown.links),
    ):
        if len(some) < len(every):
            yield f"Shown: {len(some)} of {counted(len(every), what)}"


def encode_schedule(shown: Schedule, heavy: Sequence[str]) -> bytes:
    """Names and slices for the script, as those of a step's ops."""
    colour = {kind: index for index, kind in enumerate(heavy)}
    number: dict[tuple[str, str], int] = {}
    for each in _slices((*shown.devices, *shown.links)):
        number.setdefault((each.name, each.kind), len(number))
    names = [visible(name, NAME) for name, _ in number]

    def rows(tracks: Sequence[Track]) -> list[dict[str, object]]:
        return [
            {
                "label": visible(track.label, NAME),
                "slices": _flat(
                    (one.start, one.end, number[one.name, one.kind]) for one in track.slices
                ),
            }
            for track in tracks
        ]

    line = {
        "title": shown.title,
        "end": shown.end,
        "links": rows(shown.links),
        "rows": rows(shown.devices),
    }
    return msgspec.json.encode(
        {
            "keys": [],
            "names": names,
            "ops": [-1] * len(names),
            "colours": [colour.get(kind, -1) for _, kind in number],
            "end": shown.end,
            "timelines": [line],
        }
    )


def _slices(tracks: Iterable[Track]) -> Iterable[Slice]:
    return (each for track in tracks for each in track.slices)
