"""Counters, rates and the roofline of each op at its best threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dltune.analysis import op_tables
from dltune.analysis.roofline import Analysis
from dltune.report.charts.marks import legend
from dltune.report.charts.roofline import roofline
from dltune.report.markup import Markup, joined, tag
from dltune.schemas.profile import Counters
from dltune.views import Picture, Piece, on_page, on_terminal

ROWS = 200


def rates(analysis: Analysis) -> Iterator[Piece]:
    yield Picture(lambda _: _roofs(analysis))
    ops = [figures for figures in analysis.ops if figures.best][:ROWS]
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
