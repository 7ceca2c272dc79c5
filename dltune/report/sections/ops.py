"""Sections of the page about ops: times by op type, times of each op, counters and rates.

Each op is shown with its times by threads, the chosen point on its curve, and the reason for its
time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from dltune.analysis import op_tables
from dltune.analysis.op_causes import why
from dltune.analysis.roofline import Analysis, Figures, Roofline
from dltune.base.formatting import Bar, Cell, Prose, Table, columns
from dltune.report.markup import Markup, captioned, html, joined, legend, short, tag
from dltune.report.plot import Axis, Plot, up_to
from dltune.schemas.plan import Plan, Threads
from dltune.schemas.profile import Counters, Op, OpTime, Placement
from dltune.views import Picture, Piece, on_page, on_terminal

# An op's time by threads

PLACEMENTS: tuple[Placement, ...] = ("spread", "shared")
SPARK = (84, 22)  # pixels


def scaling(op: Op, chosen: tuple[int, Placement | None] | None) -> Markup:
    """Draw an op's time by threads: a line for each placement, a ring at the chosen point. The
    times are medians with their spread, in milliseconds, from 0."""
    most = max(time.threads for time in op.times)
    high = up_to(time.median * (1 + time.spread) * 1e3 for time in op.times)
    said = ", ".join(f"{t.threads} {t.placement} {t.median * 1e3:.3g} ms" for t in op.times)
    plot = Plot(
        x=Axis(0.5, most + 0.5, whole=True),
        y=Axis(0.0, high, unit=" ms"),
        height=110,
        label=f"{short(op.type)} by threads: {said}",
        x_ticks=6,
        y_ticks=3,
    )
    marks = [
        plot.line([(t.threads, t.median * 1e3) for t in line(op, placement)], f"line {placement}")
        for placement in PLACEMENTS
    ]
    for time in op.times:
        title = f"{time.threads} threads {time.placement}: {time.median * 1e3:.3f} ms"
        marks.append(
            plot.dot(time.threads, time.median * 1e3, f"dot {time.placement}", title, radius=3)
        )
    if chosen and (at := near(op, chosen)):
        title = f"chosen: {chosen[0]} threads {chosen[1] or ''}".strip()
        marks.append(plot.dot(at.threads, at.median * 1e3, "ring", title, radius=7))
    return plot.draw(*marks)


def spark(op: Op, chosen: tuple[int, Placement | None] | None) -> Markup:
    """The same in a table's cell, without numbers."""
    wide, tall = SPARK
    most = max(time.threads for time in op.times)
    high = max(time.median for time in op.times) or 1.0

    def place(time: OpTime) -> tuple[float, float]:
        x = 5 + (wide - 10) * ((time.threads - 1) / (most - 1) if most > 1 else 0.5)
        return x, tall - 4 - (tall - 8) * time.median / high

    marks = []
    for placement in PLACEMENTS:
        if points := [place(time) for time in line(op, placement)]:
            d = "M" + "L".join(f"{x:.0f},{y:.1f}" for x, y in points)
            marks.append(tag("path", d=Markup(d), class_=f"line {placement}"))
    if chosen and (at := near(op, chosen)):
        x, y = place(at)
        marks.append(tag("circle", cx=f"{x:.0f}", cy=f"{y:.1f}", r=3, class_="ring"))
    return tag("svg", *marks, width=wide, height=tall, aria_hidden="true")


def line(op: Op, placement: Placement) -> list[OpTime]:
    """The points of a placement; one thread, which has no neighbour to share with, is in both."""
    found = [t for t in op.times if t.placement == placement or t.threads == 1]
    return sorted(found, key=lambda time: time.threads)


def near(op: Op, chosen: tuple[int, Placement | None]) -> OpTime | None:
    """The measured point for a choice; without a placement, the first that was measured. None when
    none was measured there, as in a plan for a larger machine."""
    count, placement = chosen
    there = [time for time in op.times if time.threads == count]
    return next((t for t in there if t.placement == placement), there[0] if there else None)


# Time by op type, and every op

# ops drawn large, and rows of the table at most: beyond them an op is a thousandth of a step
DRAWN = 12
ROWS = 500

Choices = Mapping[str, tuple[int, Placement | None]]


def choices(analysis: Analysis, plan: Plan | None) -> Choices:
    """By key the threads and placement that the plan gives; without a plan, the fastest measured.

    An op that the plan does not name runs on the intra-op threads of the plan's uniform setting,
    where the operating system places them (None).
    """
    section = plan.of(Threads) if plan else None
    if section is None:
        best = ((f.op.key, f.best.time) for f in analysis.ops if f.best)
        return {key: (time.threads, time.placement) for key, time in best}
    named: dict[str, tuple[int, Placement | None]] = {
        entry.key: (entry.threads, entry.placement) for entry in section.ops
    }
    rest = (section.uniform.intra, None)
    return {f.op.key: named.get(f.op.key, rest) for f in analysis.ops if f.best}


def types(analysis: Analysis) -> Table:
    """Return the time by op type: on one thread, at each op's best threads, and in the job's own
    run."""
    kinds: dict[str, list[Figures]] = {}
    for figures in analysis.ops:
        kinds.setdefault(figures.op.type, []).append(figures)
    ordered = sorted(kinds.items(), key=lambda kind: -sum(f.serial for f in kind[1]))
    most = max((sum(f.share for f in found) for _, found in ordered), default=0.0) or 1.0
    rows = []
    for kind, found in ordered:
        share = sum(figures.share for figures in found)
        serial = sum(figures.serial for figures in found)
        best = sum(f.best.time.median * f.op.count for f in found if f.best)
        rows.append(
            (
                kind,
                str(len(found)),
                str(sum(figures.op.count for figures in found)),
                Bar(share / most),
                f"{share:.1%}",
                _ms(serial),
                _ms(best),
                f"{serial / best:.2f}x" if best > 0 else "",
                _ms(_own(found)),
            )
        )
    heads = columns(
        *("op type", ">ops", ">runs", "", ">share", ">1 thread ms", ">best threads ms"),
        *(">gain", ">own settings ms"),
    )
    return Table("time of a round by op type", heads, rows, sorted_by=4, name="types-table")


def curves(analysis: Analysis, chosen: Choices) -> Markup:
    """Thread-scaling curves of the ops that take the most time."""
    drawn = [
        captioned([tag("b", short(op.type)), " ", _shape(op)], scaling(op, chosen.get(op.key)))
        for op in (figures.op for figures in analysis.top(DRAWN))
    ]
    return tag("div", *drawn, class_="multiples")


def ops(analysis: Analysis, chosen: Choices, prefix: str) -> Markup:
    """Return the times of every op; next to them the chosen point, the curve, and why an op takes
    its time."""
    timed = analysis.top(len(analysis.ops))
    table = op_tables.times(timed[:ROWS])
    rows = [  # the curve is drawn in place of its numbers
        (*row[:-1], *_beside(figures, analysis, chosen))
        for row, figures in zip(table.rows, timed, strict=False)
    ]
    heads = (*table.columns[:-1], *columns("chosen", "", "why"))
    wide = replace(table, columns=heads, rows=rows)
    shown = html(wide, f"{prefix}-ops-table")
    own = op_tables.own_times(analysis.profile.ops, DRAWN, op_tables.WORTH)
    if own.rows:  # such as what torch.compile has compiled
        shown = joined([shown, html(own, f"{prefix}-own-table")])
    left = timed[ROWS:]
    if not left:
        return shown
    share = sum(figures.share for figures in left)
    return joined([shown, tag("p", f"{len(left)} more ops, together {share:.2%}, are left out.")])


def _beside(figures: Figures, analysis: Analysis, chosen: Choices) -> tuple[Cell, ...]:
    choice = chosen.get(figures.op.key)
    return (
        f"{choice[0]} {choice[1] or ''}".strip() if choice else "",
        spark(figures.op, choice),
        Prose(why(figures, analysis)[1]),
    )


def _shape(op: Op) -> str:
    return ", ".join(map(short, op.inputs[:3])) + (", …" if len(op.inputs) > 3 else "")


def _own(found: Iterable[Figures]) -> float:
    return sum((figures.op.own or 0.0) * figures.op.count for figures in found)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


# The roofline

# the area of a dot is its op's share of all op time; pixels of the radius
SMALLEST, LARGEST = 2.5, 14.0


def roofline(ops: Sequence[Figures], roof: Roofline) -> Markup | None:
    """Draw the roofline: ops by intensity and rate, under the ceilings. None when no op has a
    place, or no ceiling is known."""
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


# Rates and counters

RATE_ROWS = 200


def rates(analysis: Analysis) -> Iterator[Piece]:
    """Yield the rates and the roofline of each op at its best threads."""
    yield Picture(lambda _: _roofs(analysis))
    ops = [figures for figures in analysis.ops if figures.best][:RATE_ROWS]
    yield from on_page(replace(op_tables.rates(ops), name="rates-table"))


def _roofs(analysis: Analysis) -> Markup:
    roof = analysis.roofline
    body: list[object] = []
    if picture := roofline(analysis.ops, roof):
        body += [
            tag("p", "GFLOP/s over flop per byte; the area of a dot is its op's share of op time."),
            picture,
            legend(
                [
                    ("dot compute", "under the compute roof"),
                    ("dot memory", "under memory"),
                    ("dot cache", "under cache"),
                ]
            ),
        ]
    return joined([*body, tag("ul", *(tag("li", line) for line in op_tables.ceilings(roof)))])


def counters(found: Counters) -> Iterator[Piece]:
    """What was counted, and where the events happened."""
    yield from on_page(f"Asked: {found.asked}. {found.why}")
    yield from on_terminal("", f"counters ({found.asked}): {found.why}")
    if found.totals:
        yield replace(op_tables.totals(found.totals), name="totals-table")
    if found.overhead:
        yield op_tables.overhead(found.overhead)
