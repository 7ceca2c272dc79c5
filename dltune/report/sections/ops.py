"""Time by op type; and every op: its times by threads, the chosen point on its curve, and why it
takes its time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from dltune.analysis import op_tables
from dltune.analysis.op_causes import why
from dltune.analysis.roofline import Analysis, Figures
from dltune.base.formatting import Bar, Cell, Prose, Table, columns
from dltune.report.charts.marks import captioned
from dltune.report.charts.scaling import scaling, spark
from dltune.report.markup import Markup, joined, short, tag
from dltune.report.table import html
from dltune.schemas.plan import Plan, Threads
from dltune.schemas.profile import Op, Placement

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
    """On one thread, at each op's best threads, and in the job's own run."""
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
    """The times; beside them what was chosen, the curve, and why an op takes its time."""
    timed = analysis.top(len(analysis.ops))
    table = op_tables.times(timed[:ROWS])
    rows = [  # the curve is drawn in place of its numbers
        (*row[:-1], *_beside(figures, analysis, chosen))
        for row, figures in zip(table.rows, timed, strict=False)
    ]
    heads = (*table.columns[:-1], *columns("chosen", "", "why"))
    wide = dataclasses.replace(table, columns=heads, rows=rows)
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
