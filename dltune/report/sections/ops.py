"""Every op: its times by threads, the chosen point on its curve, and why it takes its time."""

from __future__ import annotations

from collections.abc import Mapping

from dltune.analysis.figures import Analysis, Figures
from dltune.analysis.why import why
from dltune.documents.plan import Plan
from dltune.documents.profile import Op, Placement
from dltune.documents.sections.threads import Threads
from dltune.report.charts.scaling import scaling, spark
from dltune.report.markup import Markup, joined, short, tag
from dltune.report.table import key_cell, table
from dltune.tables import Cell

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


def curves(analysis: Analysis, chosen: Choices) -> Markup:
    """Thread-scaling curves of the ops that take the most time."""
    drawn = [
        tag(
            "figure",
            tag("figcaption", tag("b", short(figures.op.type)), " ", _shape(figures.op)),
            scaling(figures.op, chosen.get(figures.op.key)),
        )
        for figures in analysis.top(DRAWN)
    ]
    return tag("div", *drawn, class_="multiples")


def ops(analysis: Analysis, chosen: Choices, prefix: str) -> Markup:
    timed = analysis.top(len(analysis.ops))
    rows = [_row(figures, analysis, chosen) for figures in timed[:ROWS]]
    heads = (
        *("op", ">runs", ">share", ">1 thread ms", ">own ms", "best threads", ">best ms"),
        *(">gain", "chosen", "", "why"),
    )
    caption = "Ops by time on one thread"
    shown = table(f"{prefix}-ops-table", caption, heads, rows, sorted_by=2)
    left = timed[ROWS:]
    if not left:
        return shown
    share = sum(figures.share for figures in left)
    return joined([shown, tag("p", f"{len(left)} more ops, together {share:.2%}, are left out.")])


def _row(figures: Figures, analysis: Analysis, chosen: Choices) -> tuple[Cell, ...]:
    assert figures.best is not None
    op, best = figures.op, figures.best.time
    one = next((t for t in op.times if t.threads == 1), best)
    choice = chosen.get(op.key)
    return (
        key_cell(op.key),
        str(op.count),
        f"{figures.share:.1%}",
        f"{one.median * 1e3:.3f}",
        "" if op.own is None else f"{op.own * 1e3:.3f}",
        f"{best.threads} {best.placement}",
        f"{best.median * 1e3:.3f}",
        f"{one.median / best.median:.2f}x" if best.median > 0 else "",
        f"{choice[0]} {choice[1] or ''}".strip() if choice else "",
        spark(op, choice),
        tag("span", why(figures, analysis)[1], class_="why"),
    )


def _shape(op: Op) -> str:
    return ", ".join(map(short, op.inputs[:3])) + (", …" if len(op.inputs) > 3 else "")
