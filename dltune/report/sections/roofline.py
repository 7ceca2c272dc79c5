"""Counters, rates and the roofline of each op at its best threads."""

from __future__ import annotations

from dltune.analysis import derived
from dltune.analysis.figures import Analysis
from dltune.documents.profile import Counters
from dltune.report.charts.marks import legend
from dltune.report.charts.roofline import roofline
from dltune.report.markup import Markup, joined, tag
from dltune.report.table import html

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
    ops = [figures for figures in analysis.ops if figures.best][:ROWS]
    body.append(html(derived.rates(ops), f"{prefix}-rates-table"))
    return joined(body)


def counters(found: Counters, prefix: str) -> Markup:
    """What was counted, and where the events happened."""
    body: list[object] = [tag("p", f"Asked: {found.asked}. {found.why}")]
    if found.totals:
        body.append(html(derived.totals(found.totals), f"{prefix}-totals-table"))
    if found.overhead:
        body.append(tag("p", derived.overhead(found.overhead)))
    return joined(body)
