"""A comparison: settings that took turns, measured beside predicted."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from dltune.base import documents
from dltune.base.formatting import visible
from dltune.bench import step_times
from dltune.bench.step_times import measured
from dltune.report.markup import Markup, joined, legend, row, tag, tick
from dltune.report.page import plan_behind
from dltune.report.plot import Axis, Plot, cdf, up_to
from dltune.schemas.bench import Bench, Setting
from dltune.schemas.plan import Plan, Uniform
from dltune.views import Context, Headline, Picture, Section, View, on_page, on_terminal


def view(bench: Bench, context: Context) -> View:
    sections = []
    if bench.partial:
        partial = f"this comparison is partial: {bench.partial}"
        sections.append(Section("partial", "", on_terminal(partial)))
    if measured(bench):
        times = [
            *on_terminal(visible(shlex.join(bench.command))),
            Picture(lambda _: _beside(bench)),
            *on_page(f"Ratios are over {bench.reference}: below 1 is faster."),
            step_times.times(bench),
            *on_terminal(
                f"ratio: step time divided by that of {bench.reference}; below 1 is faster"
            ),
        ]
        costs = [step_times.costs(bench), *on_terminal("", *_closing(bench))]
        sections += [
            Section("bench", "Predicted and measured", times),
            Section("steps", "Step times", [Picture(lambda _: _steps(bench))]),
            Section("rounds", "Rounds", [Picture(lambda _: _rounds(bench))]),
            Section("costs", "CPU time and switches", costs),
        ]
    remarks = [] if bench.partial is None else [f"This comparison is partial: {bench.partial}."]
    if not measured(bench):
        remarks.append("No setting was measured.")
    else:
        remarks += [f"{sentence}." for sentence in step_times.by_chance(bench)]
    plan = plan_behind(bench, context)
    if plan is None and context.of(Plan):
        remarks.append("This comparison used a plan that is not on this page.")
    if plan and documents.digest(plan) != bench.plan:
        remarks.append("This comparison was made before settings were put into the plan.")
    return View(
        title="Bench",
        head=[
            ("command", shlex.join(bench.command)),
            ("machine", f"{len(bench.machine.cores)} cores: {bench.machine.name}"),
            ("framework", bench.framework.title),
            ("made", f"{bench.created}, dltune {bench.dltune}"),
            ("rounds", str(bench.rounds)),
        ],
        sections=sections,
        headlines=_headlines(bench),
        remarks=remarks,
    )


def _closing(bench: Bench) -> Iterator[str]:
    yield from step_times.by_chance(bench)
    rounds = min(len(setting.turns) for setting in measured(bench))
    levels = {s.summary.ratio.confidence for s in measured(bench) if s.summary and s.summary.ratio}
    if levels and min(levels) < 0.95:
        yield (
            f"with {rounds} rounds the confidence of the interval is only {min(levels):.0%}: 95 % "
            "needs at least 6 rounds"
        )
    if plan := next((setting for setting in measured(bench) if setting.name == "plan"), None):
        parts = [bench.strategy, *map(str, plan.choices)]
        yield f"the plan is {', '.join(filter(None, parts))}{_twins(plan, bench)}"
        if sentence := step_times.speed_up(plan, bench):
            yield sentence


def _twins(plan: Setting, bench: Bench) -> str:
    """Settings that are the very same as the plan: how they differ is noise."""
    if plan.choices or bench.strategy != Uniform(plan.intra, plan.inter).setting:
        return ""
    pair = (plan.intra, plan.inter, plan.cpus)
    twins = [s.name for s in bench.settings if s is not plan and (s.intra, s.inter, s.cpus) == pair]
    if not twins:
        return ""
    return f", the same setting as {' and '.join(twins)}: differences between them are noise"


def _headlines(bench: Bench) -> list[Headline]:
    plan = next((s for s in bench.settings if s.name == "plan" and s.summary), None)
    if plan is None or plan.summary is None or plan.summary.ratio is None:
        return []
    ratio = plan.summary.ratio
    verdict = (
        "faster than" if ratio.high < 1 else "slower than" if ratio.low > 1 else "as fast, within "
        "noise, as"
    )  # fmt: skip
    sentence = (
        f"Measured, the plan ({bench.strategy}) is {verdict} {bench.reference}: {ratio.median:.3f} "
        f"of its step time ({ratio.confidence:.0%} interval {ratio.low:.3f} to {ratio.high:.3f}, "
        f"{ratio.rounds} rounds)."
    )
    return [Headline(0, sentence)]


def _beside(bench: Bench) -> Markup:
    """Each setting's turns, its median, and what was predicted."""
    ends = [turn.median * 1e3 for s in measured(bench) for turn in s.turns]
    ends += [s.predicted * 1e3 for s in measured(bench) if s.predicted]
    axis = Axis(0.0, up_to(ends), " ms")
    rows = []
    for setting in measured(bench):
        assert setting.summary is not None
        middle = setting.summary.step.median * 1e3
        said = f"{setting.name}: measured {middle:.1f} ms"
        plot = Plot(axis, Axis(0.0, 1.0), 20, said)
        marks = [plot.reach(0.0, axis.high, "grid")]
        for turn in setting.turns:
            title = f"round {turn.round + 1}: {turn.median * 1e3:.1f} ms"
            marks.append(plot.dot(turn.median * 1e3, 0.5, "dot turn", title, radius=3))
        marks.append(plot.dot(middle, 0.5, "dot spread", f"median {middle:.1f} ms", radius=6))
        if setting.predicted:
            predicted = f"predicted {setting.predicted * 1e3:.1f} ms"
            said += f", {predicted}"
            marks.append(plot.dot(setting.predicted * 1e3, 0.5, "ring", predicted, radius=8))
        rows.append(row(setting.name, marks, plot.height, said))
    rows.append(row("", [tick(text, axis.at(value), 12) for value, text in axis.ticks(5)], 16))
    names = [("dot turn", "a turn"), ("dot spread", "median step"), ("dotring", "predicted")]
    return joined([legend(names), tag("div", *rows, class_="rows")])


def _steps(bench: Bench) -> Markup:
    """Of each setting all steps, and E of each where transfers are ordered."""
    times = {s.name: [t * 1e3 for turn in s.turns for t in turn.steps] for s in measured(bench)}
    overlaps = {s.name: found for s in measured(bench) if (found := step_times.scheduling(s))}
    drawn = [cdf("Share of steps that took at most this long", times, " ms")]
    if overlaps:
        caption = "Share of steps with at most this transfer efficiency (E)"
        drawn.append(cdf(caption, overlaps))
    return joined(drawn)


def _rounds(bench: Bench) -> Markup:
    """Turns over rounds, to see the machine drift."""
    last = max(turn.round for setting in measured(bench) for turn in setting.turns) + 1
    times = [turn.median * 1e3 for s in measured(bench) for turn in s.turns]
    plot = Plot(
        x=Axis(0.5, last + 0.5, whole=True),
        y=Axis(0.0, up_to(times), unit=" ms"),
        height=200,
        label=f"Median step of each turn over {last} rounds",
    )
    marks = []
    names = []
    for index, setting in enumerate(measured(bench)):
        turns = sorted(setting.turns, key=lambda turn: turn.round)
        points = [(turn.round + 1.0, turn.median * 1e3) for turn in turns]
        marks.append(plot.line(points, f"line stroke{index % 8}"))
        for x, y in points:
            title = f"{setting.name}, round {x:.0f}: {y:.1f} ms"
            marks.append(plot.dot(x, y, f"dot fill{index % 8}", title, radius=2.5))
        names.append((f"line stroke{index % 8}", setting.name))
    return joined([plot.draw(*marks), legend(names)])
