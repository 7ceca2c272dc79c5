"""Counters, rates and the roofline of each op at its best threads."""

from __future__ import annotations

from dltune.analysis import derived
from dltune.analysis.figures import Analysis
from dltune.documents.profile import Counters
from dltune.report.charts.bars import legend
from dltune.report.charts.roofline import roofline
from dltune.report.markup import Markup, joined, tag
from dltune.report.table import key_cell, table

ROWS = 200


def rates(analysis: Analysis, prefix: str) -> Markup:
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
    body.append(tag("ul", *(tag("li", line) for line in derived.ceilings(roof))))
    body.append(_table(analysis, prefix))
    return joined(body)


def _table(analysis: Analysis, prefix: str) -> Markup:
    ops = [figures for figures in analysis.ops if figures.best][:ROWS]
    heads, cells = derived.columns(ops)
    rows = [
        (key_cell(of.op.key), f"{of.share:.1%}", *row) for of, row in zip(ops, cells, strict=True)
    ]
    caption = "Ops at their best threads, per run"
    return table(f"{prefix}-rates-table", caption, ("op", ">share", *heads), rows, sorted_by=1)


def counters(found: Counters, prefix: str) -> Markup:
    """What was counted, and where the events happened."""
    body: list[object] = [tag("p", f"Asked: {found.asked}. {found.why}")]
    if found.totals:
        caption = "Where the events happened"
        body.append(table(f"{prefix}-totals-table", caption, *derived.totals(found.totals)))
    if found.overhead:
        body.append(tag("p", derived.overhead(found.overhead)))
    return joined(body)
