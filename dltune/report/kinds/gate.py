"""A gate's result: each limit, what was measured against it, and the verdict."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from dltune.base.formatting import visible
from dltune.gate import formats
from dltune.report.markup import Markup, captioned, joined, legend, row, short, tag
from dltune.report.plot import Axis, Plot
from dltune.schemas.gate import Result
from dltune.views import Context, Headline, Picture, Piece, Section, View, on_terminal

# what values are divided by for an axis, and how they are written there
UNITS = {"s": (1e-3, " ms"), "bytes": (2.0**20, " MiB"), "count": (1.0, ""), "": (1.0, "")}


def view(result: Result, _: Context) -> View:
    limits: list[Piece] = [formats.table(result), Picture(lambda _: _ratios(result))]
    if slower := formats.where(result):
        limits.append(slower)
    return View(
        title="Gate",
        head=[
            ("command", shlex.join(result.command)),
            ("base", _revision(result.base.name, result.base.commit)),
            ("head", _revision(result.head.name, result.head.commit)),
            ("machine", f"{len(result.machine.cores)} cores: {result.machine.name}"),
            ("made", f"{result.created}, dltune {result.dltune}, in {result.seconds:.0f} s"),
        ],
        sections=[
            Section("limits", "Limits", limits),
            Section("gate-rounds", "Rounds of the gate", [Picture(lambda _: _rounds(result))]),
            Section("closing", "", on_terminal(*_closing(result))),
        ],
        headlines=[_headline(result)],
        remarks=result.notes,
    )


def _closing(result: Result) -> Iterator[str]:
    for verdict in result.verdicts:
        if verdict.outcome == "undecided":
            why = visible(formats.undecided(verdict), 400)
            yield f"{visible(verdict.metric)}: undecided: {why}"
    for note in result.notes:
        yield f"note: {visible(note, 400)}"
    if result.outcome == "undecided":
        yield f"this configuration counts undecided as {'pass' if result.passed else 'fail'}"


def _revision(name: str, commit: str | None) -> str:
    return f"{name} ({commit[:12]})" if commit else name


def _headline(result: Result) -> Headline:
    failed = [short(v.metric) for v in result.verdicts if v.outcome == "fail"]
    open_ = [short(v.metric) for v in result.verdicts if v.outcome == "undecided"]
    if failed:
        sentence = f"Limits do not hold: {', '.join(failed)}"
    elif open_:
        sentence = f"Limits are undecided: {', '.join(open_)}"
    else:
        sentence = f"All {len(result.verdicts)} limits hold"
    return Headline(0, f"{sentence} ({short(result.head.name)} against {short(result.base.name)}).")


def _ratios(result: Result) -> Markup:
    """Intervals of the ratios, with the limit of each."""
    found = [
        (v, v.low, v.median, v.high)
        for v in result.verdicts
        if v.over == "ratio" and v.low is not None and v.median is not None and v.high is not None
    ]
    if not found:
        return Markup()
    ends = [end for verdict, low, _, high in found for end in (low, high, verdict.limit)]
    axis = Axis(min(1.0, *ends) * 0.98, max(1.0, *ends) * 1.02)
    rows = []
    for verdict, low, median, high in found:
        said = f"{short(verdict.metric)}: {low:.3f} to {high:.3f}, limit {verdict.limit:.3f}"
        plot = Plot(axis, Axis(0.0, 1.0), 20, said)
        marks = [
            plot.upright(1.0, "live"),
            plot.upright(verdict.limit, "recommended"),
            plot.reach(low, high, "line spread"),
            plot.dot(median, 0.5, "dot spread", said, radius=4),
        ]
        rows.append(row(short(verdict.metric), marks, plot.height, said))
    names = [
        ("line spread", "ratio to the base"),
        ("live", "no change"),
        ("recommended", "the limit"),
    ]
    return joined([legend(names), tag("div", *rows, class_="rows")])


def _rounds(result: Result) -> Markup:
    """Each metric that varies, over the rounds, on both sides."""
    drawn = []
    measured = result.measured.values()
    metrics = {m.metric: UNITS[m.unit] for side in measured for m in side if not m.exact}
    for metric, (scale, unit) in metrics.items():
        raw = [next((m.values for m in side if m.metric == metric), ()) for side in measured]
        series = [[value / scale for value in found] for found in raw]
        values = [value for found in series for value in found]
        if len(values) < 3:
            continue
        low, high = min(values), max(values)
        room = (high - low) * 0.1 or abs(high) * 0.1 or 1.0
        plot = Plot(
            x=Axis(0.5, max(map(len, series)) + 0.5, whole=True),
            y=Axis(max(0.0, low - room), high + room, unit=unit),
            height=120,
            label=f"{short(metric)} over rounds",
            y_ticks=4,
        )
        marks = [
            plot.line(list(enumerate(found, start=1)), f"line stroke{index % 8}")
            for index, found in enumerate(series)
        ]
        drawn.append(captioned(short(metric), plot.draw(*marks)))
    if not drawn:
        return tag("p", "Every metric is exact: one measurement is enough.")
    names = [(f"line stroke{index % 8}", short(side)) for index, side in enumerate(result.measured)]
    return joined([legend(names), *drawn])
