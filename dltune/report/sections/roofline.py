"""Counters, rates and the roofline of each op at its best threads."""

from __future__ import annotations

from collections.abc import Callable

from dltune.analysis.figures import Analysis
from dltune.analysis.rates import Rates
from dltune.documents.profile import Counters
from dltune.report.charts.bars import legend
from dltune.report.charts.roofline import roofline
from dltune.report.markup import Markup, joined, tag
from dltune.report.table import key_cell, table

ROWS = 200

# head, figure, how it is written: as in the terminal's tables
FIGURES: tuple[tuple[str, Callable[[Rates], float | None], Callable[[float], str]], ...] = (
    (">GFLOP/s", lambda r: r.flop_rate, lambda v: f"{v / 1e9:.3g}"),
    (">flop/B", lambda r: r.intensity, lambda v: f"{v:.3g}"),
    (">moves GB/s", lambda r: r.byte_rate, lambda v: f"{v / 1e9:.3g}"),
    (">IPC", lambda r: r.ipc, lambda v: f"{v:.2f}"),
    (">LLC miss", lambda r: r.miss_rate, lambda v: f"{v:.1%}"),
    (">LLC GB/s", lambda r: r.memory_rate, lambda v: f"{v / 1e9:.3g}"),
    (">faults", lambda r: r.faults, lambda v: f"{v:.3g}" if v < 1000 else f"{v:.0f}"),
    (">switches", lambda r: r.switches, lambda v: f"{v:.2g}" if v < 100 else f"{v:.0f}"),
    (">CPU", lambda r: r.cpu_share, lambda v: f"{v:.0%}"),
)


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
    ceilings = [
        tag(
            "li",
            f"{name}: {ceiling.rate / 1e9:.3g} {unit} "
            f"({'the best here: ' if ceiling.measured else 'from '}{ceiling.source})",
        )
        for name, ceiling, unit in (
            ("compute", roof.compute, "GFLOP/s"),
            ("memory", roof.memory, "GB/s"),
            ("cache", roof.cache, "GB/s"),
        )
        if ceiling
    ]
    body.append(tag("ul", *ceilings))
    body.append(_table(analysis, prefix))
    return joined(body)


def _table(analysis: Analysis, prefix: str) -> Markup:
    ops = [figures for figures in analysis.ops if figures.best][:ROWS]
    columns = []
    for head, read, write in FIGURES:
        values = [read(of.best.rates) if of.best else None for of in ops]
        if any(value is not None for value in values):
            columns.append((head, ["" if v is None else write(v) for v in values]))
    share = [f"{of.position.share:.0%}" if of.position else "" for of in ops]
    under = [of.position.under if of.position else "" for of in ops]
    columns += [(">of roof", share), ("roof", under)]
    heads = ("op", ">share", *(head for head, _ in columns))
    rows = [
        (
            key_cell(of.op.key),
            f"{of.share:.1%}",
            *(cells[index] for _, cells in columns),
        )
        for index, of in enumerate(ops)
    ]
    caption = "Ops at their best threads, per run"
    return table(f"{prefix}-rates-table", caption, heads, rows, sorted_by=1)


def counters(found: Counters, prefix: str) -> Markup:
    """What was counted, and where the events happened."""
    body: list[object] = [tag("p", f"Asked: {found.asked}. {found.why}")]
    rows = []
    for total in found.totals:
        values = (total.ops, total.gaps, total.others, total.process)
        clock = total.event in ("task-clock", "cpu-clock")
        cells = [f"{value:.3f} s" if clock else f"{value:.0f}" for value in values]
        counted = total.ops + total.gaps + total.others
        rows.append(
            (total.event, *cells, f"{counted / total.process:.1%}" if total.process > 0 else "")
        )
    if rows:
        heads = ("event", ">in ops", ">between ops", ">other threads", ">process", ">accounted")
        body.append(table(f"{prefix}-totals-table", "Where the events happened", heads, rows))
    if over := found.overhead:
        body.append(
            tag(
                "p",
                f"A step with ops recorded and counted takes {over.median:.3f}x as long as a plain "
                f"one (95 % interval {over.low:.3f} to {over.high:.3f}, {over.pairs} pairs).",
            )
        )
    return joined(body)
